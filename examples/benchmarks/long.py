"""A training step on long inputs, side by side with the field's long encoders."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification

from examples.benchmarks import measure
from examples.benchmarks.measure import HEADS, Outcome, Settings, agree
from examples.benchmarks.models import TrainingStep, random_batch, widen
from jat_graph import JatConfig, attach, detach
from jat_graph.hf import attached_config
from jat_graph.patterns import parse_pattern, pattern_attention

# MiniLM. Nothing is dropped out, so that fused kernels really run.
SHAPE: dict[str, Any] = {"vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6}
SHAPE |= {"num_attention_heads": 12, "intermediate_size": 1536}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
WINDOW = 256  # to each side, the token itself included
PATTERN = parse_pattern(f"window:{WINDOW}+global:1")
# A step on so many tokens compiles kernels and fills the optimizer's state. With fewer than 705,
# BigBird would give up its sparse attention for good. The pattern is checked on as many.
WARM_UP_TOKENS = 1024

_common = {"heads": HEADS, "pattern": PATTERN}
CONFIGS = {
    "significance": JatConfig.paper(key_selection="significance", **_common),
    "sampled": JatConfig.paper(key_selection="sampled", **_common),
    "window": JatConfig.paper(hop_weights=(1.0,), **_common),
    "stones": JatConfig.stones(key_selection="sampled", strength=0.1, **_common),
}
# What transformers calls an encoder, and settings of its own; all other sides are BERT.
KINDS: dict[str, dict[str, Any]] = {
    "longformer": {"attention_window": 2 * WINDOW},  # both sides together
    "big_bird": {"attention_type": "block_sparse"},
    "modernbert": {f"{n}_token_id": int(n != "pad") for n in ("cls", "sep", "bos", "eos", "pad")},
}


def encoder_step(length: int, settings: Settings, ours: str, theirs: str) -> Outcome:
    """A whole training step of two encoders of one shape, and the peaks of both."""
    sides, device = (ours, theirs), settings.device
    peaks = [measure.peak(build, side, length, settings, device=device) for side in sides]
    step, facts = _open(ours, length, settings)
    other, config = build(theirs, length, settings), attached_config(step.model)
    attach(detach(step.model), CONFIGS["window"])
    plain = step.loss()
    check_pattern(step)
    attach(step.model, config)
    if ours != "window":
        step.require_change(plain)
    found = in_turns(step, other, settings, **facts)
    memory = {"our_bytes": peaks[0], "their_bytes": peaks[1], "memory_ratio": peaks[0] / peaks[1]}
    return found | {"facts": found["facts"] | memory}


def in_turns(step: TrainingStep, other: TrainingStep, settings: Settings, **facts: Any) -> Outcome:
    """Time two encoders in turns, and give no numbers of one that was not sparse."""
    found = measure.in_turns(step, other, settings, heavy=True, **facts)
    # BigBird turns itself dense on short inputs.
    if getattr(other.model.base_model, "attention_type", "block_sparse") != "block_sparse":
        raise measure.NotMeasured("on so short an input it gives up its sparse attention")
    return found


def allowed_pairs(rows: Tensor, length: int) -> Tensor:  # bool, [rows, length]
    """Which of all keys the pattern lets the queries of some rows read."""
    keys = torch.arange(length, device=rows.device)
    return PATTERN.mask_mod(rows[:1] * 0, rows[:1] * 0, rows[:, None], keys)


def check_pattern(step: TrainingStep) -> None:
    """Refuse an encoder within its pattern that is not stock BERT under the dense mask of it."""
    whole, step.batch = step.batch, step.begun(WARM_UP_TOKENS)
    ours, length = step.loss(), step.batch["input_ids"].size(1)
    detach(step.model)
    dense = allowed_pairs(torch.arange(length, device=step.model.device), length)
    step.batch = {**step.batch, "attention_mask": dense.expand(1, 1, -1, -1)}
    agree(ours, step.loss())
    step.batch = whole


def make_encoder(kind: str, batch: dict[str, Tensor], shape: dict[str, Any]) -> TrainingStep:
    """A step of an encoder of ``KINDS``, or of BERT; the first token of Longformer is global."""
    settings = {**shape, **NO_DROPOUT, **KINDS.get(kind, {})}
    if kind == "longformer":
        settings["max_position_embeddings"] += 2  # counted from 2, as RoBERTa's
        mask = torch.zeros_like(batch["input_ids"])
        mask[:, 0] = 1
        batch = {**batch, "global_attention_mask": mask}
    config = AutoConfig.for_model(kind if kind in KINDS else "bert", **settings)
    model = widen(AutoModelForSequenceClassification.from_config(config))
    return TrainingStep(model.to(batch["input_ids"].device), batch)


def _open(side: str, length: int, settings: Settings) -> tuple[TrainingStep, dict[str, float]]:
    """A step of one sequence, after one on its beginning, and what its graphs have to do."""
    torch.manual_seed(0)
    batch = random_batch(1, length, SHAPE["vocab_size"], settings.device)
    step = make_encoder(side, batch, SHAPE | {"max_position_embeddings": length})
    whole, facts = step.batch, {}
    if side in ("significance", "sampled"):
        facts = step.jump(CONFIGS[side], tokens=2048)
    elif side in CONFIGS:
        attach(step.model, CONFIGS[side])
    step.batch = step.begun(WARM_UP_TOKENS)
    step()
    step.batch = whole
    return step, facts


def build(side: str, length: int, settings: Settings) -> TrainingStep:
    """A step of one encoder on one sequence."""
    return _open(side, length, settings)[0]


def layer(length: int, settings: Settings) -> Outcome:
    """The attention of one layer within the window against all pairs."""
    generator = torch.Generator().manual_seed(0)
    heads, width = SHAPE["num_attention_heads"], SHAPE["hidden_size"]
    drawn = torch.randn(3, 1, heads, length, width // heads, generator=generator)
    query, key, value = drawn.to(settings.device, settings.dtype)
    within = partial(pattern_attention, pattern=PATTERN)
    rows = torch.arange(0, length, -(-length // 16), device=query.device)
    mask = allowed_pairs(rows, length)
    wanted = F.scaled_dot_product_attention(query[:, :, rows], key, value, attn_mask=mask)
    agree(within(query, key, value)[:, :, rows], wanted)
    sides = (within, F.scaled_dot_product_attention)
    steps = (partial(measure.run, side, (query, key, value)) for side in sides)
    return measure.in_turns(*steps, settings)
