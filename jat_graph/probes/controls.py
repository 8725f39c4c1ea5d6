"""Models to compare with, which cannot know what is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def random_weights(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    """Return a model of the same shape as a base whose weights are as before any training."""
    from transformers import AutoModel

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        found: Any = AutoModel.from_config(model.config)  # type: ignore[no-untyped-call]
    twin: PreTrainedModel = found.eval()
    return twin
