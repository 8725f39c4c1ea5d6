"""What single questions share: a file of finished runs, and steps of training; no script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from examples.tasks.base import read_lines, reading

Row: TypeAlias = dict[str, Any]


def read_runs(path: Path, layout: str, wanted: Callable[[Row], bool]) -> list[Row]:
    """Return the wanted runs of a file, if it is there."""
    rows = [row for _, row in read_lines(path)] if path.exists() else []
    with reading(path, layout):
        return [*filter(wanted, rows)]


def add_runs(path: Path, rows: Iterable[Row]) -> None:
    """Write runs to the end of a file."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


def descend(
    model: nn.Module,
    losses: Iterable[Tensor],
    optimizer: Optimizer,
    schedule: LRScheduler,
    clip: float | None = None,
) -> Iterator[Tensor]:
    """Take a step down each loss, which is computed after the step before; yield the losses."""
    for loss in losses:
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        schedule.step()
        yield loss.detach()
