"""Models to compare with, which cannot know what is asked."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch

from jat_graph.hf.adapter import find_attachment

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def random_weights(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    """Return a model of the same shape as a base whose weights are as before any training."""
    from transformers import AutoModel

    # Heads of ours are no part of a configuration, but the name of their attention is.
    own = {} if find_attachment(model) is None else {"attn_implementation": "sdpa"}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        found: Any = AutoModel.from_config(deepcopy(model.config), **own)  # type: ignore[no-untyped-call]
    twin: PreTrainedModel = found.eval()
    return twin
