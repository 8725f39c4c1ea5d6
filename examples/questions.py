"""What single questions share: a file of finished runs, and steps of training; no script."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import get_linear_schedule_with_warmup

from examples.tasks.base import read_lines, reading
from jat_graph.training import parameter_groups

Row: TypeAlias = dict[str, Any]


def read_runs(path: Path, layout: str, wanted: Callable[[Row], bool]) -> list[Row]:
    """Return the wanted runs of a file, if it is there."""
    rows = [row for _, row in read_lines(path)] if path.exists() else []
    with reading(path, layout):
        return [*filter(wanted, rows)]


def add_runs(path: Path, rows: Iterable[Row]) -> list[str]:
    """Write runs to the end of a file; return their lines."""
    lines = [json.dumps(row) for row in rows]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    return lines


def warm_adam(
    model: nn.Module, rate: float, strength_rate: float, steps: int
) -> tuple[Optimizer, LRScheduler]:
    """Return AdamW with a rate of its own for strengths, and rates that rise for a tenth."""
    groups = parameter_groups(model, lr=rate, strength_lr=strength_rate, weight_decay=0.01)
    optimizer = AdamW(groups)
    return optimizer, get_linear_schedule_with_warmup(optimizer, steps // 10, steps)


def descend(
    model: nn.Module,
    losses: Iterable[Tensor],
    optimizer: Optimizer,
    schedule: LRScheduler | None = None,
    clip: float | None = None,
) -> Iterator[Tensor]:
    """Take a step down each loss, which is computed after the step before; yield the losses."""
    for loss in losses:
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        yield loss.detach()


def tenths(losses: Iterable[Tensor]) -> list[float]:
    """Return the mean losses of tenths of the steps."""
    return [round(float(part.mean()), 4) for part in torch.stack([*losses]).chunk(10)]
