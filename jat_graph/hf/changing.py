"""Other settings for the jump heads of a model, which keep what they have learned."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from jat_graph.attention.heads import JumpStrength
from jat_graph.attention.layers import HeadLayers
from jat_graph.config import JatConfig
from jat_graph.config_fields import EXTERNAL
from jat_graph.hf.adapter import attach, attached_config, detach


def learned_by_heads(model: nn.Module) -> dict[str, Tensor]:
    """Return what jump heads have learned: strengths and layers of PyG, by their names."""
    return {
        f"{path}.{name}": tensor.detach()
        for path, module in model.named_modules()
        if isinstance(module, JumpStrength | HeadLayers)
        for name, tensor in module.state_dict(keep_vars=True).items()
    }


def attach_again(
    model: nn.Module,
    config: JatConfig | None,
    learned: Mapping[str, Tensor],
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Give a model the jump heads of another config, or none; what they have learned stays."""
    given = next((m.layers for m in model.modules() if isinstance(m, HeadLayers)), None)
    if attached_config(model) is not None:
        detach(model, JatConfig)
    if config is not None:
        own = given is not None and config.conv == EXTERNAL
        attach(model, config, tokenizer, (lambda _: deepcopy(given)) if own else None)  # type: ignore[arg-type, return-value]
    for name, tensor in learned_by_heads(model).items():
        if name in learned and learned[name].shape == tensor.shape:
            with torch.no_grad():
                tensor.copy_(learned[name])
