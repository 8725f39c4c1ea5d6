"""The memory that something takes at its peak, measured in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import torch

from jat_graph.lab.speed.checks import CheckError, NoRoomError
from jat_graph.lab.speed.series import Settings
from jat_graph.lab.speed.timing import Step

PEAK_RESET = Path("/proc/self/clear_refs")
# glibc keeps what is freed for later, up to 32 MiB a piece, and a peak must not hide in that.
RETURNING = {
    "MALLOC_MMAP_MAX_": "65536",  # as it is where nobody says otherwise
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
NO_ROOM = "(?i)out of memory|can't allocate memory|MemoryError"  # torch says it in several ways

_STATUS = Path("/proc/self/status")


def missing_peaks(device: str) -> str:
    """Say what a process lacks here to measure its peak."""
    missing = device == "cpu" and not PEAK_RESET.exists()
    return "only Linux lets a process reset its peak" if missing else ""


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
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    before = _reset_peak()
    step()
    return _status("VmHWM") - before


def _reset_peak() -> int:
    """Forget the peak so far, and return what is resident now, in bytes.

    ``getrusage`` would not do: a process inherits that peak from the one that started it.
    """
    PEAK_RESET.write_text("5", encoding="ascii")
    return _status("VmRSS")


def _status(name: str) -> int:
    """An entry of the process's status, in bytes."""
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    """Measure what the command line says, and print the bytes."""
    module, side, length, device = sys.argv[1:]
    peak = import_module(module).run_side(side, int(length), Settings(device, 1))
    sys.stdout.write(f"{peak}\n")


if __name__ == "__main__":
    main()
