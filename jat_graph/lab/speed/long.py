"""``long``: a training step on long inputs, side by side with the field's long encoders."""

from __future__ import annotations

from functools import cache, partial

import torch
import torch.nn.functional as F

from jat_graph.attention.patterns.api import pattern_attention
from jat_graph.checks.tensors import default_scale
from jat_graph.lab.speed.checks import NoRoomError, require_close, sampled_tokens
from jat_graph.lab.speed.heads import backward, leaves
from jat_graph.lab.speed.inputs import Heads
from jat_graph.lab.speed.long_models import (
    ALONE,
    BIGBIRD,
    CONFIGS,
    JUMPS,
    LONGFORMER,
    MODERNBERT,
    PATTERN,
    SAMPLED,
    SHAPE,
    STOCK,
    STONES,
    WINDOW,
    allowed_keys,
    build_side,
    check_side,
    is_sparse,
)
from jat_graph.lab.speed.probe import peak_of, probe
from jat_graph.lab.speed.series import Bar, Benchmark, Fact, Outcome, Series, Settings
from jat_graph.patterns import parse_pattern
from jat_graph.training.memory import missing_peaks

ATTENTION, ALL_PAIRS = "attention alone, window", "fused SDPA over all pairs"
COMPARISONS = (
    (JUMPS, ALONE),
    (SAMPLED, JUMPS),
    *((JUMPS, other) for other in (LONGFORMER, BIGBIRD, MODERNBERT, STOCK)),
    *((STONES, other) for other in (ALONE, LONGFORMER, BIGBIRD)),
)
LONGEST = {"cpu": 16384, "cuda": 65536}
SHORTEST, SLOPE_FROM = 512, 2048
ATTENTION_LENGTH = 8192
# A step on so many tokens compiles kernels and fills the optimizer's state. With fewer than 705,
# BigBird would give up its sparse attention for good.
WARM_UP_TOKENS = 1024
NOT_SPARSE = "not measured: on so short an input it gives up its sparse attention"
NO_ROOM = "not measured: a step needs more memory than the machine has"


def long_series(settings: Settings) -> tuple[Series, ...]:
    """The attention of a layer alone, then training steps of whole encoders."""
    longest = LONGEST[settings.device]
    doublings = range((longest // SHORTEST).bit_length())
    lengths = tuple(SHORTEST * 2**exponent for exponent in doublings)
    largest = LONGEST["cuda"]
    return (
        Series(ATTENTION, ALL_PAIRS, (ATTENTION_LENGTH,), largest, attention_against_all_pairs),
        *(
            Series(what, against, lengths, largest, partial(_measure, what=what, against=against))
            for what, against in COMPARISONS
        ),
    )


def _measure(length: int, settings: Settings, what: str, against: str) -> Outcome:
    name = f"{what} against {against}, L={length}"
    facts, note = _memory(length, settings, what, against)
    if note == NO_ROOM:
        return Outcome(note=note)
    ours, theirs = (build_side(side, length, settings) for side in (what, against))
    work = check_side(name, ours, CONFIGS[what])
    for step in (ours, theirs):
        step.warm_up(WARM_UP_TOKENS)
    timing = settings.time([ours.run], [theirs.run], heavy=True)
    if not is_sparse(theirs.model):
        return Outcome(note=NOT_SPARSE)
    return Outcome.of(timing, {**work, **facts}, note)


def _memory(
    length: int, settings: Settings, what: str, against: str
) -> tuple[dict[str, Fact], str]:
    """The peaks of both sides, or why there are none."""
    if missing := missing_peaks(settings.device):
        return {}, f"memory not measured: {missing}"
    try:
        return memory_facts(*(peak(side, length, settings.device) for side in (what, against))), ""
    except NoRoomError:
        return {}, NO_ROOM


def memory_facts(ours: int, theirs: int) -> dict[str, Fact]:
    """The peaks of both sides and their ratio by name."""
    return {"our_bytes": ours, "their_bytes": theirs, "memory_ratio": ours / theirs}


def attention_against_all_pairs(length: int, settings: Settings) -> Outcome:
    """Time the attention of one layer, forward and backward."""
    heads = _random_layer(length, settings)
    pattern = parse_pattern(PATTERN)
    check_attention(f"{ATTENTION}, L={length}", heads)
    timing = settings.time(
        [lambda: backward(pattern_attention(*leaves(heads), pattern=pattern))],
        [lambda: backward(F.scaled_dot_product_attention(*leaves(heads)))],
    )
    return Outcome.of(timing, {})


def check_attention(what: str, heads: Heads) -> None:
    """Refuse to go on unless the attention of sampled tokens is that of the definition."""
    rows = sampled_tokens(heads.length, heads.query.device)
    allowed = allowed_keys(rows, heads.length)
    got = pattern_attention(heads.query, heads.key, heads.value, pattern=parse_pattern(PATTERN))
    query = heads.query[:, :, rows]
    plain = F.scaled_dot_product_attention(query, heads.key, heads.value, attn_mask=allowed)
    scores = query.double() @ heads.key.double().transpose(-1, -2)
    scores = (scores * default_scale(query.size(-1))).masked_fill(~allowed, -torch.inf)
    require_close(what, got[:, :, rows], plain, scores.softmax(-1) @ heads.value.double())


def _random_layer(length: int, settings: Settings) -> Heads:
    heads = SHAPE["num_attention_heads"]
    shape = (1, heads, length, SHAPE["hidden_size"] // heads)
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(shape, generator=generator) for _ in range(3))
    return Heads(*(tensor.to(settings.torch_device, settings.dtype) for tensor in drawn))


@cache
def peak(side: str, length: int, device: str) -> int:
    """Measure the peak memory of a step, once for all comparisons that it stands in."""
    return probe(__name__, side, length, device)


def run_side(side: str, length: int, settings: Settings) -> int:
    """Run a training step, and return what it took above weights, gradients and optimizer."""
    step = build_side(side, length, settings)
    step.warm_up(WARM_UP_TOKENS)
    return peak_of(step.run, settings.torch_device)


LONG = Benchmark(
    name="long",
    claim=(
        "A whole training step on one long sequence, forward, backward and AdamW: a BERT of "
        "MiniLM's shape (6 layers, 12 heads, hidden size 384) whose heads see "
        f"{WINDOW} tokens to each side, themselves included, and one global token, 4 heads of "
        "each layer jumping along pairs or stones, against other encoders of the same shape. "
        "Weights are random, dropout is 0 everywhere, so that fused kernels really run. Peak "
        "memory is that of a step above weights, gradients and optimizer, in a fresh process. "
        "First, the attention of one "
        "layer alone, forward and backward, D = 32."
    ),
    series=long_series,
    growing=("ours", "theirs", "our_bytes"),
    growing_from=SLOPE_FROM,
    bars=(
        Bar("cpu", ATTENTION, ALL_PAIRS, ATTENTION_LENGTH, ATTENTION_LENGTH, 1 / 4),
        Bar("cpu", STONES, ALONE, 8192, 8192, 1.15),
        *(
            Bar(device, what, other, SLOPE_FROM, LONGEST["cuda"], 1.0, number)
            for device in ("cpu", "cuda")
            for what in (JUMPS, STONES)
            for other in (LONGFORMER, BIGBIRD)
            for number in ("ratio", "memory_ratio")
        ),
    ),
    slope_bar=1.15,
    drawn=(("ours", "theirs"), ("our_bytes", "their_bytes")),
)
