"""Finished cells on disk: each in its own folder, and all together in one file of one experiment.

What a cell's result depends on is written beside it, so that results of other settings are refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch

from jat_graph.lab.machine import describe_machine, source_digest
from jat_graph.lab.parsing import parse
from jat_graph.lab.store import check_same, fingerprint
from jat_graph.lab.studies.arms import GridArm
from jat_graph.lab.studies.cells import Cell, Plan, cell_folder
from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.results import (
    RESULTS_FILE,
    Record,
    Results,
    read_results,
    sort_records,
    write_results,
)
from jat_graph.lab.tables import SECONDS
from jat_graph.training.results import versions
from jat_graph.training.storage import prepare_folder, read_json, write_json

RECORD_FILE = "record.json"
RECORD_VERSION = 1

_WEIGHTS = ("config.json", "*.safetensors", "*.bin")


class Store:
    """What the folder of an experiment holds, or of a comparison, whose cells lie elsewhere in it.

    Nothing is read before :meth:`finished`, nor written before :meth:`save` or :meth:`gather`.
    """

    def __init__(
        self, plan: Plan, output: Path, place: Callable[[Path, Cell], Path] = cell_folder
    ) -> None:
        self.plan, self.output, self._place = plan, output, place

    @cached_property
    def shared(self) -> dict[str, Any]:
        """What the files of all cells have alike."""
        return {
            "version": RECORD_VERSION,
            "fingerprint": plan_fingerprint(self.plan),
            "processes": self.plan.processes.count,
        }

    @property
    def path(self) -> Path:
        """The file of all results."""
        return self.output / RESULTS_FILE

    def folder(self, cell: Cell) -> Path:
        """Return where a cell is run."""
        return self._place(self.output, cell)

    def finished(self) -> dict[Cell, Record]:
        """Return the finished cells, whether their own folders hold them or the common file."""
        return {record.cell: record for record in self._results().records}

    def save(self, record: Record) -> None:
        """Write a finished cell into its folder."""
        folder = prepare_folder(self.folder(record.cell))
        machine = describe_machine(torch.device(record.device)) | {"source": source_digest()}
        content = {
            **self.shared,
            "settings": describe_cell(self.plan.grid, record.cell),
            "record": replace(record, machine=machine).to_dict(),
        }
        write_json(folder / RECORD_FILE, content)

    def gather(self) -> Results:
        """Write all finished cells into the common file.

        Other processes may do the same. Each looks once more after it has written, so that
        whoever is last has seen all cells.
        """
        results, written = self._results(), None
        while results.records != written:
            write_results(self.path, results)
            written, results = results.records, self._results()
        return results

    def _results(self) -> Results:
        grid, path = self.plan.grid, self.path
        results = Results(
            grid=grid,
            fingerprint=self.shared["fingerprint"],
            model=self.plan.model_name,
            data=self.plan.data_name,
            versions=versions(),
            machine=describe_machine(torch.device("cpu")),
        )
        if path.exists():
            common = read_results(path)
            check_results(common, self.plan, str(path))
            results = replace(common, grid=grid) if common.records else results
        records = {record.cell: record for record in (*results.records, *self._found())}
        return replace(results, records=sort_records(grid, records.values()))

    def _found(self) -> Iterator[Record]:
        """Yield the cells of the plan whose folders hold them."""
        for cell in self.plan.cells:
            path = self.folder(cell) / RECORD_FILE
            content = read_json(path)
            if content is not None:
                yield self._read(content, cell, path)

    def _read(self, content: dict[str, Any], cell: Cell, path: Path) -> Record:
        found = {"processes": 1} | content
        check_same({name: found.get(name) for name in self.shared}, self.shared, str(path))
        asked = describe_cell(self.plan.grid, cell)
        settings = content.get("settings")
        check_same(settings if isinstance(settings, dict) else {}, asked, str(path))
        record = parse(Record, content.get("record"), str(path))
        if record.cell != cell:
            raise ValueError(f"{path} must hold the cell {cell}, got {record.cell}")
        return record


def plan_fingerprint(plan: Plan) -> str:
    """What all cells of one experiment share; tasks, arms and seeds may be added to it."""
    grid = plan.grid
    return fingerprint(
        grid.name, grid.kind, grid.own, plan.model_name, plan.data_name, _weights(plan.model)
    )


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
        f"weights of {plan.model_name}": (results.fingerprint, plan_fingerprint(plan)),
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


def _describe_arm(grid: Grid, task: str, arm: GridArm) -> dict[str, Any]:
    tuning = None if arm.tune is False or grid.tuning is None else asdict(grid.tuning)
    beside = {} if arm.triplets is None else {"triplets": arm.triplets}
    return {
        "options": grid.options(task, arm),
        "heads": arm.heads,
        "settings": arm.settings,
        "density": arm.density,
        "tuning": tuning,
        **beside,
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
