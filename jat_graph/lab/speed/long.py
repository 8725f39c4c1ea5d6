"""``long``: a training step on long inputs, side by side with the field's long encoders."""

from __future__ import annotations

from functools import cache, partial

from jat_graph.lab.speed.case import announce
from jat_graph.lab.speed.checks import NoRoomError
from jat_graph.lab.speed.long_attention import ALL_PAIRS, ATTENTION, attention_against_all_pairs
from jat_graph.lab.speed.long_checks import check_side
from jat_graph.lab.speed.long_models import (
    ALONE,
    BIGBIRD,
    CONFIGS,
    JUMPS,
    LONGFORMER,
    MODERNBERT,
    SAMPLED,
    STOCK,
    WINDOW,
    build_side,
    is_sparse,
)
from jat_graph.lab.speed.long_probe import WARM_UP_TOKENS
from jat_graph.lab.speed.memory import probe
from jat_graph.lab.speed.probe import PEAK_RESET
from jat_graph.lab.speed.series import Benchmark, Fact, Outcome, Series, Settings
from jat_graph.lab.speed.timing import time_in_turns

COMPARISONS = (
    (JUMPS, ALONE),
    (SAMPLED, JUMPS),
    *((JUMPS, other) for other in (LONGFORMER, BIGBIRD, MODERNBERT, STOCK)),
)
LONGEST = {"cpu": 16384, "cuda": 65536}
SHORTEST, SLOPE_FROM = 512, 2048
ATTENTION_LENGTH = 8192
NOT_SPARSE = "not measured: on so short an input it gives up its sparse attention"
NO_ROOM = "not measured: a step needs more memory than the machine has"
NO_PEAKS = "memory not measured: only Linux lets a process reset its peak"


def long_series(settings: Settings) -> tuple[Series, ...]:
    """Return the comparisons."""
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
    announce(name, work)
    for step in (ours, theirs):
        step.warm_up(WARM_UP_TOKENS)
    timing = time_in_turns(
        [ours.run],
        [theirs.run],
        device=settings.torch_device,
        repeats=settings.repeats,
        heavy=True,
    )
    if not is_sparse(theirs.model):
        return Outcome(note=NOT_SPARSE)
    return Outcome.of(timing, {**work.facts, **facts}, note)


def _memory(
    length: int, settings: Settings, what: str, against: str
) -> tuple[dict[str, Fact], str]:
    """Return the peaks of both sides, or why there are none."""
    if settings.device == "cpu" and not PEAK_RESET.exists():
        return {}, NO_PEAKS
    try:
        return memory_facts(*(peak(side, length, settings.device) for side in (what, against))), ""
    except NoRoomError:
        return {}, NO_ROOM


def memory_facts(ours: int, theirs: int) -> dict[str, Fact]:
    """Return the peaks of both sides and their ratio by name."""
    return {"our_bytes": ours, "their_bytes": theirs, "memory_ratio": ours / theirs}


@cache
def peak(side: str, length: int, device: str) -> int:
    """Measure the peak memory of a step, once for all comparisons that it stands in."""
    return probe(side, length, Settings(device, 1), "long_probe")


LONG = Benchmark(
    name="long",
    claim=(
        "A whole training step on one long sequence, forward, backward and AdamW: a BERT of "
        "MiniLM's shape (6 layers, 12 heads, hidden size 384) whose heads see "
        f"{WINDOW} tokens to each side, themselves included, and one global token, 4 heads of "
        "each layer jumping, against other encoders of the same shape. Weights are random, "
        "dropout is 0 everywhere, so that fused kernels really run. Peak memory is that of a step "
        "above weights, gradients and optimizer, in a fresh process. First, the attention of one "
        "layer alone, forward and backward, D = 32."
    ),
    series=long_series,
    growing=("ours", "theirs", "our_bytes"),
    growing_from=SLOPE_FROM,
    drawn=(("ours", "theirs"), ("our_bytes", "their_bytes")),
)
