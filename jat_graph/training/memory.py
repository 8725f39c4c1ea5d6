"""The memory that this process takes at its peak: resident on the CPU, allocated elsewhere."""

from __future__ import annotations

from pathlib import Path

import torch

PEAK_RESET = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


def missing_peaks(device: str) -> str:
    """Say what a process lacks here to measure its peak."""
    missing = device == "cpu" and not PEAK_RESET.exists()
    return "only Linux lets a process reset its peak" if missing else ""


def reset_peak(device: torch.device) -> int:
    """Forget the peak so far, and return the bytes that are taken now.

    ``getrusage`` would not do: a process inherits that peak from the one that started it.
    """
    if device.type != "cpu":
        torch.accelerator.reset_peak_memory_stats(device)
        return int(torch.accelerator.memory_allocated(device))
    PEAK_RESET.write_text("5", encoding="ascii")
    return _status("VmRSS")


def peak_bytes(device: torch.device) -> int:
    """The bytes that were taken at the peak since it was forgotten."""
    if device.type != "cpu":
        return int(torch.accelerator.max_memory_allocated(device))
    return _status("VmHWM")


def _status(name: str) -> int:
    """An entry of the process's status, in bytes."""
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
