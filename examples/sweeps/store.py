"""The one file of a sweep: JSON lines, a header and then a record for each finished run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any

from filelock import FileLock

from examples.sweeps.definition import Run, Sweep, parse_sweep
from jat_graph.files import parse_object, write_text

VERSION = 2  # 1 is that of `jat-graph experiment`, which reports read, and no sweep goes on with
_PACKAGES = ("torch", "torch-geometric", "transformers")
_DIGITS = 5  # of numbers among answers, which are compared with each other
_SAME = ("name", "kind", "study")  # of sweeps whose records may stand in one file


@dataclass(frozen=True)
class Record:
    """What a finished run says about itself.

    Args:
        task: Name of the task, as the sweep has it.
        variant: Name of the variant.
        seed: The seed.
        content: All that was written: ``scores[split][metric]``, ``answers[split]["said"]`` and
            ``["right"]``, ``seconds``, ``threshold``, ``strengths`` …
    """

    task: str
    variant: str
    seed: int
    content: Mapping[str, Any]

    @property
    def scores(self) -> Mapping[str, Mapping[str, float | None]]:
        """The scores by split and metric; None where undefined."""
        found: Mapping[str, Mapping[str, float | None]] = self.content["scores"]
        return found

    def value(self, split: str, metric: str) -> float | None:
        """Return a score, or the seconds of the training."""
        if metric == "seconds":
            return float(self.content["seconds"])
        return self.scores.get(split, {}).get(metric)


@dataclass(frozen=True)
class Results:
    """A sweep and its finished runs, in the sweep's order.

    Args:
        sweep: The sweep.
        header: The first line of the file.
        records: The finished runs.
    """

    sweep: Sweep
    header: Mapping[str, Any]
    records: tuple[Record, ...]

    def of(self, task: str, variant: str) -> dict[int, Record]:
        """Return the records of a variant on a task, by seed."""
        return {r.seed: r for r in self.records if (r.task, r.variant) == (task, variant)}


def read_results(path: str | Path) -> Results:
    """Read the file of a sweep, or of an experiment of earlier versions.

    Args:
        path: The file.

    Returns:
        The results.

    Raises:
        ValueError: If a line is no JSON, or a record is of no run of the sweep, or there twice.
        OSError: If the file cannot be read.
    """
    where = f"results {path}"
    # splitlines would also split at what JSON leaves as it is within a text, as U+2028
    lines = Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    found = [parse_object(line, f"{where}, line {n}") for n, line in enumerate(lines, start=1)]
    header, contents = found[0], found[1:]
    if header.get("version") not in (1, VERSION):
        raise ValueError(f"{where}: version must be 1 or {VERSION}, got {header.get('version')!r}")
    old = header["version"] == 1
    content = _of_version_1(header["grid"]) if old else header["sweep"]
    sweep = parse_sweep(content, where)
    records = [Record(c["task"], c["arm" if old else "variant"], c["seed"], c) for c in contents]
    variants = [variant.name for variant in sweep.variants]
    order = {(t, v): (i, j) for i, t in enumerate(sweep.tasks) for j, v in enumerate(variants)}
    keys = [(record.task, record.variant, record.seed) for record in records]
    for place, (task, variant, seed) in enumerate(keys):
        if (
            (task, variant) not in order
            or seed not in sweep.all_seeds
            or keys.index(keys[place]) < place
        ):
            raise ValueError(
                f"{where}: {task}, {variant}, seed {seed} is twice or not in its sweep"
            )
    records.sort(key=lambda r: (*order[r.task, r.variant], r.seed))
    return Results(sweep, header, tuple(records))


def _of_version_1(grid: Mapping[str, Any]) -> dict[str, Any]:
    """A grid in the words of a sweep; options are those of the time, and no longer run."""
    kind, paper = grid.get("kind", "train"), dict(grid.get("paper", {}))
    training = grid.get("training", {})
    of_tasks = {name: value for name, value in training.items() if name in grid["tasks"]}
    said = {name: paper.pop(name) for name in ("model", "quoted") if name in paper}
    kept = ("title", "tasks", "seeds", "source", "columns", "mean", "x_label", "tuning", "question")
    return {name: grid[name] for name in kept if name in grid} | {
        "name": grid["name"],
        "kind": kind,
        "variants": grid["arms"],
        "options": {name: value for name, value in training.items() if name not in of_tasks},
        "task_options": of_tasks,
        "study": grid.get(kind, {}),
        "paper": said | {"scores": paper},
    }


class Store:
    """The file of a sweep that is being run; several processes and machines may share it.

    Args:
        path: The file.
        sweep: What is run.
        model: Folder or Hub name of the model; None where runs make their own.
        data_dir: Folder of the data; None without one.
    """

    def __init__(self, path: Path, sweep: Sweep, model: str | None, data_dir: Path | None) -> None:
        self.path, self.sweep, self._lock = path, sweep, FileLock(f"{path}.lock")
        self.header = {
            "version": VERSION,
            "sweep": sweep.model_dump(mode="json", exclude_defaults=True),
            "model": None if model is None else _plain(model),
            "weights": None if model is None else _digest(Path(model)),
            "data": None if data_dir is None else _plain(str(data_dir)),
            "versions": {name: version(name) for name in _PACKAGES},
        }

    def finished(self, runs: Iterable[Run]) -> set[tuple[str, str, int]]:
        """Return which runs are finished, and refuse a file that does not fit the sweep.

        Args:
            runs: All runs of the sweep.

        Returns:
            Task, variant and seed of the finished ones.

        Raises:
            ValueError: If the file is of another sweep, model or data, or a run of it was done with
                other settings, or is none of these.
        """
        if not self.path.exists():
            return set()
        results, asked = read_results(self.path), {run.key: run for run in runs}
        old = {**results.header, **results.sweep.model_dump(mode="json", include=set(_SAME))}
        new = {**self.header, **self.sweep.model_dump(mode="json", include=set(_SAME))}
        self._refuse(old, new, ("version", *_SAME, "model", "weights", "data"), "")
        for record in results.records:
            run = asked.get((record.task, record.variant, record.seed))
            if run is None:
                raise ValueError(
                    f"{self.path} holds {record.task}, {record.variant}, seed {record.seed}, "
                    "which is no run of this sweep: name another folder"
                )
            settings = json.loads(json.dumps(run.settings))
            self._refuse(record.content["settings"], settings, settings, f"{run}: ")
        return {(record.task, record.variant, record.seed) for record in results.records}

    def _refuse(
        self, old: Mapping[str, Any], new: Mapping[str, Any], names: Iterable[str], where: str
    ) -> None:
        for name in names:
            if old.get(name) != new.get(name):
                raise ValueError(
                    f"{self.path} holds results with {where}{name}={old.get(name)!r}, not "
                    f"{new.get(name)!r}: name another folder"
                )

    def add(self, run: Run, content: Mapping[str, Any]) -> None:
        """Write the record of a run, unless it is there; the file is whole at any time.

        Args:
            run: The run.
            content: What it found: ``scores`` and more.

        Raises:
            OSError: If the file cannot be written.
            ValueError: If a number is not finite.
        """
        record = {"task": run.task, "variant": run.variant.name, "seed": run.seed}
        record |= {"settings": run.settings, **content}
        record["answers"] = _shortened(content.get("answers", {}))
        line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        with self._lock:
            if not self.path.exists():
                text = json.dumps(self.header, ensure_ascii=False) + "\n"
            else:
                _, *others = (text := self.path.read_text(encoding="utf-8")).split("\n")
                if run.key in {_key(other) for other in others if other}:
                    return
            write_text(self.path, text + line + "\n")


def _key(line: str) -> tuple[str, str, int]:
    content = json.loads(line)
    return content["task"], content["variant"], content["seed"]


def _plain(path: str) -> str:
    """The last part of a folder's path, of one named ``model`` two; a Hub name as it is."""
    if not Path(path).is_dir():
        return path
    parts = PurePath(Path(path).expanduser().resolve()).parts
    return "/".join(parts[-2:] if parts[-1] == "model" else parts[-1:])


def _digest(folder: Path) -> str | None:
    """A digest of a folder's weights: many are called ``model``."""
    files = [p for ending in ("config.json", "*.safetensors") for p in sorted(folder.glob(ending))]
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12] if files else None


def _shortened(value: Any) -> Any:
    """Round all floats to a few significant digits."""
    if isinstance(value, Mapping):
        return {key: _shortened(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(entry) for entry in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
