"""Encoders for long inputs in one shape: a step of each, and what must hold before it is timed.

Weights are random, and nothing is dropped out.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from jat_graph.config import JatConfig
from jat_graph.hf import attach, detach
from jat_graph.lab.speed.checks import require_close
from jat_graph.lab.speed.inputs import NUM_HEADS, THRESHOLD
from jat_graph.lab.speed.model import (
    TrainingStep,
    cut_batch,
    random_batch,
    require_change,
    require_work,
    strengthen,
)
from jat_graph.lab.speed.series import Fact, Settings
from jat_graph.patterns import parse_pattern

# MiniLM.
SHAPE = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SCALED_TOKENS = 2048  # longer than a few windows
MARGIN = 1.2  # the keys of longer inputs are others, and may join less
WINDOW = 256  # to each side, the token itself included
PATTERN = f"window:{WINDOW}+global:1"
# The pattern is compared with a dense mask on so many tokens: four windows.
CHECKED_TOKENS = 1024

JUMPS, SAMPLED = "window + JAT†, significance", "window + JAT†, sampled"
STONES = "window + stones with values, sampled"
ALONE, STOCK = "the window alone", "stock BERT on SDPA"
LONGFORMER, BIGBIRD, MODERNBERT = "Longformer", "BigBird", "ModernBERT"

_JUMPS = JatConfig.paper(
    threshold=THRESHOLD, heads=NUM_HEADS, key_selection="significance", pattern=PATTERN
)
CONFIGS = {
    JUMPS: _JUMPS,
    SAMPLED: _JUMPS.replace(key_selection="sampled"),
    ALONE: replace(_JUMPS, hop_weights=(1.0,)),
    STONES: JatConfig.stones(
        heads=NUM_HEADS, key_selection="sampled", strength=0.1, pattern=PATTERN
    ),
}

# What transformers calls an encoder, and settings of its own; all other sides are BERT.
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    STOCK: ("bert", {"attn_implementation": "sdpa"}),
    LONGFORMER: ("longformer", {"attention_window": 2 * WINDOW}),  # both sides together
    BIGBIRD: ("big_bird", {"attention_type": "block_sparse"}),
    MODERNBERT: (
        "modernbert",
        {
            **{f"{name}_token_id": 1 for name in ("cls", "sep", "bos", "eos")},
            **{"pad_token_id": 0, "attn_implementation": "sdpa"},
        },
    ),
}


def build_side(side: str, length: int, settings: Settings) -> TrainingStep:
    """A training step of one sequence.

    Sides whose parameters have the same name and shape have the same weights; queries of the jump
    heads are scaled until the graphs do real work.
    """
    batch = random_batch(SHAPE["vocab_size"], 1, length, settings)
    model = _with_weights_of(_encoder(STOCK, length), _encoder(side, length))
    if side == LONGFORMER:
        batch["global_attention_mask"] = _only_first(batch["input_ids"])
    step = TrainingStep(model.to(settings.torch_device).train(), batch, settings)
    if side in CONFIGS:
        attach(model, CONFIGS[SAMPLED if side == SAMPLED else JUMPS])
        strengthen(step, SHAPE["num_hidden_layers"], SCALED_TOKENS, MARGIN)
        attach(detach(model), CONFIGS[side])
    return step


def stock_copy(model: Any) -> Any:
    """A copy without jump heads and pattern."""
    return detach(copy.deepcopy(model))


def check_side(what: str, step: TrainingStep, config: JatConfig) -> dict[str, Fact]:
    """Refuse to go on unless the pattern is right, and jump heads change the loss when they should.

    On the beginning of the sequence, what cannot jump gives what stock BERT gives under the dense
    mask of the pattern. Returned is what pairs have to do.
    """
    tokens = cut_batch(step.batch, 1, CHECKED_TOKENS)["input_ids"]
    mask = dense_mask(tokens.size(1), tokens.device)
    stock = stock_copy(step.model)
    plain = _outputs(step, stock, tokens, mask)
    truth = _exact_outputs(stock, tokens, mask)
    for name, harmless in _without_effect(config).items():
        attach(detach(step.model), harmless)
        require_close(
            f"{what}, outputs with {name}", _outputs(step, step.model, tokens), plain, truth
        )
    base = step.loss()
    attach(detach(step.model), config)
    if config.graph.kind == "stones":
        require_change(what, step.loss(), base)
        return {}
    work = require_work(what, step, base)
    work.announce(what)
    return {**work.facts}


def _without_effect(config: JatConfig) -> dict[str, JatConfig]:
    """Return settings with which no head jumps, by what they are."""
    if config.graph.kind == "stones":
        return {"strengths of 0": replace(config, strength=0.0)}
    return {
        "an infinite threshold": config.replace(threshold=math.inf),
        "one hop of weight 1 at index 0": replace(config, hop_weights=(1.0,)),
    }


def dense_mask(length: int, device: torch.device) -> Tensor:  # [1, 1, L, L]
    """Which pairs the pattern allows."""
    return allowed_keys(torch.arange(length, device=device), length)[None, None]


def allowed_keys(rows: Tensor, length: int) -> Tensor:  # [r], [r, L]
    """Which keys some queries may see."""
    keys = torch.arange(length, device=rows.device)
    zero = torch.zeros_like(keys[:1])
    return parse_pattern(PATTERN).mask_mod(zero, zero, rows[:, None], keys)


def is_sparse(model: Any) -> bool:
    """Tell whether a model ran as it was built: BigBird turns itself dense on short inputs."""
    return getattr(model.base_model, "attention_type", "block_sparse") == "block_sparse"


def _encoder(side: str, length: int) -> Any:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    kind, own = _KINDS.get(side, _KINDS[STOCK])
    positions = length + 2 if side == LONGFORMER else length  # counted from 2, as RoBERTa's
    settings = {**SHAPE, **NO_DROPOUT, "max_position_embeddings": positions, **own}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **settings)
    return AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]


def _with_weights_of(source: Any, model: Any) -> Any:
    """Copy the parameters of one model into another, where name and shape agree."""
    own = model.base_model.state_dict()
    given = source.base_model.state_dict()
    fitting = {
        name: weight
        for name, weight in given.items()
        if name in own and own[name].shape == weight.shape
    }
    model.base_model.load_state_dict(fitting, strict=False)
    return model


def _only_first(tokens: Tensor) -> Tensor:
    """1 for the first token of each sequence, 0 for the others: [B, L]."""
    return (torch.arange(tokens.size(1), device=tokens.device) == 0).long().expand_as(tokens)


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
