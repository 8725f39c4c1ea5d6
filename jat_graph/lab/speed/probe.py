"""One attention layer in a process of its own, and the memory that it took at its peak."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F

from jat_graph.attention.api import jump_attention
from jat_graph.config import JatConfig
from jat_graph.lab.speed.case import NUM_HEADS
from jat_graph.lab.speed.heads import backward, leaves
from jat_graph.lab.speed.inputs import THRESHOLD, Heads, random_heads
from jat_graph.lab.speed.series import Settings
from jat_graph.lab.speed.timing import Step

JUMP, STOCK = "jump", "stock"
CONFIG = JatConfig(threshold=THRESHOLD, heads=NUM_HEADS, key_selection="significance")
WARM_UP_LENGTH = 64
PEAK_RESET = Path("/proc/self/clear_refs")

_STATUS = Path("/proc/self/status")


def measure(side: str, length: int, settings: Settings) -> int:
    """Run one layer forward and backward, and return what it took above what was there before."""
    device = settings.torch_device
    small, heads = (
        random_heads(size, NUM_HEADS, device=device, dtype=settings.dtype)
        for size in (WARM_UP_LENGTH, length)
    )
    for backend in ("dense", "threshold"):  # compiles kernels and fills the libraries' own pools
        run_layer(side, small, replace(CONFIG, backend=backend))
    return peak_of(lambda: run_layer(side, heads), device)


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


def run_layer(side: str, heads: Heads, config: JatConfig = CONFIG) -> None:
    """Run the attention of one layer, forward and backward."""
    if side == JUMP:
        backward(jump_attention(*leaves(heads), config=config))
    else:
        backward(F.scaled_dot_product_attention(*leaves(heads)))


def _reset_peak() -> int:
    """Forget the peak so far, and return what is resident now, in bytes.

    ``getrusage`` would not do: a process inherits that peak from the one that started it.
    """
    PEAK_RESET.write_text("5", encoding="ascii")
    return _status("VmRSS")


def _status(name: str) -> int:
    """Return an entry of the process's status, in bytes."""
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    """Measure what the command line says, and print the bytes."""
    side, length, device = sys.argv[1:]
    sys.stdout.write(f"{measure(side, int(length), Settings(device, 1))}\n")
