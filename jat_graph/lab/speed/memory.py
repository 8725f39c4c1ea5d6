"""``memory``: the peak memory of one attention layer over the length."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

from jat_graph.lab.speed.case import NUM_HEADS
from jat_graph.lab.speed.checks import CheckError, NoRoomError
from jat_graph.lab.speed.heads import check_head
from jat_graph.lab.speed.inputs import HEAD_DIM, number_of_keys, random_heads
from jat_graph.lab.speed.probe import CONFIG, JUMP, PEAK_RESET, STOCK
from jat_graph.lab.speed.series import Benchmark, Outcome, Series, Settings
from jat_graph.lab.speed.spread import Spread

WHAT = f"JAT† layer, significance, {NUM_HEADS} heads"
AGAINST = "the same layer on SDPA"
LENGTHS = tuple(2**exponent for exponent in range(10, 17))
# glibc keeps what is freed for later, up to 32 MiB a piece, and a peak must not hide in that.
RETURNING = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
MOST_PROCESSES = 3  # a side; peaks hardly vary
PATIENCE = 900.0  # seconds
NO_ROOM = "(?i)out of memory|can't allocate memory|MemoryError"  # torch says it in several ways


def _measure(length: int, settings: Settings) -> Outcome:
    if settings.device == "cpu" and not PEAK_RESET.exists():
        return Outcome(note="not measured: only Linux lets a process reset its peak")
    heads = random_heads(length, NUM_HEADS, device=settings.torch_device, dtype=settings.dtype)
    facts = check_head(f"{WHAT}, L={length}", heads, CONFIG)
    del heads
    pairs = [
        (probe(JUMP, length, settings), probe(STOCK, length, settings))
        for _ in range(min(settings.repeats, MOST_PROCESSES))
    ]
    ours, theirs = (Spread.of([float(pair[side]) for pair in pairs]) for side in (0, 1))
    ratio = Spread.of([jump / stock for jump, stock in pairs])
    extra = ours.median - theirs.median
    return Outcome(
        ours,
        theirs,
        ratio,
        {**facts, "extra_bytes": extra, "multiple": extra / own_bytes(length, settings)},
    )


def own_bytes(length: int, settings: Settings) -> int:
    """Return the size of queries, keys and key scores together."""
    per_token = 2 * HEAD_DIM * settings.dtype.itemsize + 4 * number_of_keys(length)
    return NUM_HEADS * length * per_token


def probe(side: str, length: int, settings: Settings, module: str = "probe") -> int:
    """Measure one side in a process of its own."""
    program = f"from jat_graph.lab.speed.{module} import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, side, str(length), settings.device],
        env=os.environ | RETURNING,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        killed = done.returncode == -signal.SIGKILL  # as Linux does with what takes all memory
        kind = NoRoomError if killed or re.search(NO_ROOM, done.stderr) else CheckError
        raise kind(f"memory of {side}, L={length}: its process failed: {reason}")
    return max(4096, int(done.stdout))


MEMORY = Benchmark(
    name="memory",
    claim=(
        f"Peak memory of one attention layer of {NUM_HEADS} heads, forward and backward, B = 1, "
        "D = 64, above what its process held before, each point in a fresh process. The extra "
        "memory is also given as a multiple of Q, K and the key scores together."
    ),
    series=lambda settings: (Series(WHAT, AGAINST, LENGTHS, 2**20, _measure),),
    unit="bytes",
    patience=PATIENCE,
    growing=("ours", "theirs", "extra_bytes"),
)
