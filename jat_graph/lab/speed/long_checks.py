"""What must hold before long encoders are timed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from jat_graph.config import JatConfig
from jat_graph.hf import attach, detach
from jat_graph.lab.speed.checks import require_close
from jat_graph.lab.speed.inputs import Work
from jat_graph.lab.speed.long_models import PATTERN, stock_copy
from jat_graph.lab.speed.training_step import TrainingStep, cut_batch, require_work
from jat_graph.patterns import parse_pattern

# The pattern is compared with a dense mask on so many tokens: four windows.
CHECKED_TOKENS = 1024


def check_side(what: str, step: TrainingStep, config: JatConfig) -> Work:
    """Refuse to go on unless the pattern is right, and jump heads change the loss when they should.

    On the beginning of the sequence, hop 0 alone and an infinite threshold both give what stock
    BERT gives under the dense mask of the pattern.
    """
    tokens = cut_batch(step.batch, 1, CHECKED_TOKENS)["input_ids"]
    mask = dense_mask(tokens.size(1), tokens.device)
    stock = stock_copy(step.model)
    plain = _outputs(step, stock, tokens, mask)
    truth = _exact_outputs(stock, tokens, mask)
    alone = replace(config, hop_weights=(1.0,))
    for name, harmless in (
        ("an infinite threshold", replace(config, threshold=math.inf)),
        ("one hop of weight 1 at index 0", alone),
    ):
        attach(detach(step.model), harmless)
        require_close(
            f"{what}, outputs with {name}", _outputs(step, step.model, tokens), plain, truth
        )
    base = step.loss()
    attach(detach(step.model), config)
    return require_work(what, step, base)


def dense_mask(length: int, device: torch.device) -> Tensor:  # [1, 1, L, L]
    """Return which pairs the pattern allows."""
    return allowed_keys(torch.arange(length, device=device), length)[None, None]


def allowed_keys(rows: Tensor, length: int) -> Tensor:  # [r], [r, L]
    """Return which keys some queries may see."""
    keys = torch.arange(length, device=rows.device)
    zero = torch.zeros_like(keys[:1])
    return parse_pattern(PATTERN).mask_mod(zero, zero, rows[:, None], keys)


@torch.no_grad()
def _outputs(step: TrainingStep, model: Any, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    cuda = step.settings.device == "cuda"
    with torch.autocast(step.settings.device, torch.bfloat16, enabled=cuda):
        outputs: Tensor = model.base_model(tokens, attention_mask=mask).last_hidden_state
    return outputs


@torch.no_grad()
def _exact_outputs(model: Any, tokens: Tensor, mask: Tensor) -> Tensor:
    outputs: Tensor = model.double().base_model(tokens, attention_mask=mask).last_hidden_state
    return outputs
