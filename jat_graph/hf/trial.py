"""Whether heads fit a model, known from its configuration alone: no weights are read or drawn."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch

from jat_graph.hf.adapter import attach
from jat_graph.hf.capture import jumping_heads
from jat_graph.hf.depth import change_depth

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def try_heads(
    auto_class: Any, settings: PreTrainedConfig, configs: tuple[Any, ...], depth: int | None = None
) -> dict[int, tuple[int, ...]]:
    """Attach heads of each kind to a model without weights, and return which heads jump where.

    What does not fit raises as :func:`attach` and :func:`change_depth` do.
    """
    with torch.device("meta"):
        model = auto_class.from_config(deepcopy(settings))
        if depth is not None:
            change_depth(model, depth)
        for config in configs:
            attach(model, config)
        return jumping_heads(model)
