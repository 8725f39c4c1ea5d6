"""Finished cells on disk: each in its own folder, and all of them together in one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from jat_graph.lab.machine import describe_machine
from jat_graph.lab.studies.cells import Cell, Plan, cell_folder
from jat_graph.lab.studies.identity import check_results, check_same, describe_cell, fingerprint
from jat_graph.lab.studies.results import (
    RESULTS_FILE,
    Record,
    Results,
    read_results,
    sort_records,
    write_results,
)
from jat_graph.training.results import versions
from jat_graph.training.storage import prepare_folder, read_json, write_json

RECORD_FILE = "record.json"
RECORD_VERSION = 1


class Store:
    """What the folder of an experiment holds.

    Args:
        plan: The plan.
        output: The folder; nothing is read before :meth:`finished`, nor written before
            :meth:`save` or :meth:`gather`.
    """

    def __init__(self, plan: Plan, output: Path) -> None:
        self.plan, self.output = plan, output
        self.fingerprint = fingerprint(plan)

    @property
    def path(self) -> Path:
        """The file of all results."""
        return self.output / RESULTS_FILE

    def folder(self, cell: Cell) -> Path:
        """Return where a cell is run."""
        return cell_folder(self.output, cell)

    def finished(self) -> dict[Cell, Record]:
        """Return the finished cells, whether their own folders hold them or the common file."""
        return {record.cell: record for record in self._results().records}

    def save(self, record: Record) -> None:
        """Write a finished cell into its folder."""
        folder = prepare_folder(self.folder(record.cell))
        machine = describe_machine(torch.device(record.device))
        content = {
            "version": RECORD_VERSION,
            "fingerprint": self.fingerprint,
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
        common = read_results(path) if path.exists() else None
        if common is not None:
            check_results(common, self.plan, str(path))
        records = {record.cell: record for record in (common.records if common else ())}
        records |= {record.cell: record for record in self._found()}
        if common is not None and common.records:
            return replace(common, grid=grid, records=sort_records(grid, records.values()))
        return Results(
            grid=grid,
            fingerprint=self.fingerprint,
            model=self.plan.model_name,
            data=self.plan.data_name,
            versions=versions(),
            machine=describe_machine(torch.device("cpu")),
            records=sort_records(grid, records.values()),
        )

    def _found(self) -> Iterator[Record]:
        """Yield the cells of the plan whose folders hold them."""
        for cell in self.plan.cells:
            path = self.folder(cell) / RECORD_FILE
            content = read_json(path)
            if content is not None:
                yield self._read(content, cell, path)

    def _read(self, content: dict[str, Any], cell: Cell, path: Path) -> Record:
        expected = {"version": RECORD_VERSION, "fingerprint": self.fingerprint}
        check_same({name: content.get(name) for name in expected}, expected, str(path))
        asked = describe_cell(self.plan.grid, cell)
        settings = content.get("settings")
        check_same(settings if isinstance(settings, dict) else {}, asked, str(path))
        try:
            record = Record.from_dict(content.get("record"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if record.cell != cell:
            raise ValueError(f"{path} must hold the cell {cell}, got {record.cell}")
        return record


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Keep other processes out of a folder; a process that is killed leaves no lock behind."""
    from filelock import FileLock, Timeout

    prepare_folder(folder.parent)
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
