"""Whether results belong to a plan: what a cell's result depends on, and where two differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.grid_parts import SECONDS, GridArm
from jat_graph.lab.studies.results import Results

_WEIGHTS = ("config.json", "*.safetensors", "*.bin")
_DIGITS = 12


def fingerprint(plan: Plan) -> str:
    """Return what all cells of one experiment share; tasks, arms and seeds may be added to it."""
    grid = plan.grid
    shared = [
        grid.name,
        grid.kind,
        grid.own,
        plan.model_name,
        plan.data_name,
        _weights(plan.model),
    ]
    text = json.dumps(shared, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def describe_cell(grid: Grid, cell: Cell) -> dict[str, Any]:
    """Return what the result of a cell depends on, within its experiment."""
    arm = grid.arm(cell.arm)
    described = _describe_arm(grid, cell.task, arm)
    if SECONDS in grid.columns:  # such cells begin anew and are warmed up
        described["timed"] = True
    if isinstance(arm.tune, str):
        described["tuned as"] = _describe_arm(grid, cell.task, grid.arm(arm.tune))
    return dict(json.loads(json.dumps(described, default=dict)))


def describe_trial(grid: Grid, cell: Cell) -> dict[str, Any]:
    """Return what the score of a threshold depends on, within its experiment."""
    described = describe_cell(grid, cell)
    tuning = described.pop("tuning") or {}
    return described | {"held_out": tuning.get("held_out")}


def check_results(results: Results, plan: Plan, where: str) -> None:
    """Refuse results that do not belong to a plan."""
    if not results.records:  # of an experiment that never came to its first cell
        return
    pairs = {
        "grid": (results.grid.name, plan.grid.name),
        "kind": (results.grid.kind, plan.grid.kind),
        "model": (results.model, plan.model_name),
        "data": (results.data, plan.data_name),
        plan.grid.kind: (results.grid.own, plan.grid.own),
        f"weights of {plan.model_name}": (results.fingerprint, fingerprint(plan)),
    }
    for name, (old, new) in pairs.items():
        check_same({name: old}, {name: new}, where)
    for record in results.records:
        if record.cell not in plan.cells:
            more = record.cell in replace(plan, grid=plan.grid.with_seeds(record.seed + 1)).cells
            how = f"ask for --seeds {record.seed + 1} or more, or " if more else ""
            raise ValueError(
                f"{where} holds the cell {record.cell}, which this grid lacks: {how}name another "
                "folder"
            )
        old, new = (describe_cell(grid, record.cell) for grid in (results.grid, plan.grid))
        check_same(old, new, where)


def check_same(old: Mapping[str, Any], new: Mapping[str, Any], where: str) -> None:
    """Refuse settings that are not those asked for."""
    found, asked = dict(_flat(old)), dict(_flat(new))
    for name in sorted({*found, *asked}):
        if found.get(name) != asked.get(name):
            raise ValueError(
                f"{where} holds results with {name}={found.get(name)!r}, not {asked.get(name)!r}: "
                "name another folder"
            )


def _describe_arm(grid: Grid, task: str, arm: GridArm) -> dict[str, Any]:
    tuning = None if arm.tune is False or grid.tuning is None else asdict(grid.tuning)
    return {
        "options": grid.options(task, arm),
        "heads": arm.heads,
        "settings": arm.settings,
        "density": arm.density,
        "tuning": tuning,
    }


def _weights(model: str) -> str:
    """Return a digest of a folder's weights: many are called ``model``."""
    digest = hashlib.sha256()
    for pattern in _WEIGHTS if Path(model).is_dir() else ():
        for path in sorted(Path(model).glob(pattern)):
            found = path.stat()
            digest.update(_digest(path, found.st_size, found.st_mtime_ns))
    return digest.hexdigest()


@lru_cache(maxsize=64)
def _digest(path: Path, size: int, changed: int) -> bytes:
    """Read a file once, until it is written anew."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.digest()


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of nested tables, their names joined by dots."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
