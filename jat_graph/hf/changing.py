"""Other settings for the jump heads of a model, which keep what they have learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from jat_graph.config import JatConfig
from jat_graph.hf.adapter import attach, attached_config, detach
from jat_graph.hf.jump_layer import JumpStrength

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def learned_strengths(model: nn.Module) -> dict[str, Tensor]:
    """Return the strengths that jump heads have learned, by the names of their modules."""
    return {
        name: module.theta.detach()
        for name, module in model.named_modules()
        if isinstance(module, JumpStrength)
    }


def attach_again(
    model: nn.Module,
    config: JatConfig | None,
    strengths: Mapping[str, Tensor],
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Take off the jump heads that a model has, and put on those of a config, or none.

    Where they fit, the strengths are those given.
    """
    if attached_config(model) is not None:
        detach(model, JatConfig)
    if config is not None:
        attach(model, config, tokenizer)
    for name, own in learned_strengths(model).items():
        if name in strengths and strengths[name].shape == own.shape:
            with torch.no_grad():
                own.copy_(strengths[name])
