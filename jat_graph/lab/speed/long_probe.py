"""One training step in a process of its own, and the memory that it took at its peak."""

from __future__ import annotations

import sys

from jat_graph.lab.speed.long_models import build_side
from jat_graph.lab.speed.probe import peak_of
from jat_graph.lab.speed.series import Settings

# A step on so many tokens compiles kernels and fills the optimizer's state. With fewer than 705,
# BigBird would give up its sparse attention for good.
WARM_UP_TOKENS = 1024


def measure(side: str, length: int, settings: Settings) -> int:
    """Run a training step, and return what it took above weights, gradients and optimizer."""
    step = build_side(side, length, settings)
    step.warm_up(WARM_UP_TOKENS)
    return peak_of(step.run, settings.torch_device)


def main() -> None:
    """Measure what the command line says, and print the bytes."""
    side, length, device = sys.argv[1:]
    sys.stdout.write(f"{measure(side, int(length), Settings(device, 1))}\n")
