"""The memory that something takes at its peak, measured in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib import import_module

import torch

from jat_graph.lab.speed.checks import CheckError, NoRoomError
from jat_graph.lab.speed.series import Settings
from jat_graph.lab.speed.timing import Step
from jat_graph.training.memory import peak_bytes, reset_peak

# glibc keeps what is freed for later, up to 32 MiB a piece, and a peak must not hide in that.
RETURNING = {
    "MALLOC_MMAP_MAX_": "65536",  # as it is where nobody says otherwise
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
NO_ROOM = "(?i)out of memory|can't allocate memory|MemoryError"  # torch says it in several ways


def probe(module: str, side: str, length: int, device: str) -> int:
    """Measure in a process of its own what ``run_side`` of a module measures of a side."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, module, side, str(length), device],
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


def peak_of(step: Step, device: torch.device) -> int:
    """Run a step, and return what it took at its peak above what was there before."""
    before = reset_peak(device)
    step()
    return peak_bytes(device) - before


def main() -> None:
    """Measure what the command line says, and print the bytes."""
    module, side, length, device = sys.argv[1:]
    peak = import_module(module).run_side(side, int(length), Settings(device, 1))
    sys.stdout.write(f"{peak}\n")


if __name__ == "__main__":
    main()
