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
from pandas import json_normalize

from examples.sweeps.definition import Run, Sweep, parse_sweep
from jat_graph.core.files import parse_object, read_text, write_text

VERSION = 2  # 1 is that of `jat-graph experiment`, which reports read, and no sweep goes on with
_PACKAGES = ("torch", "torch-geometric", "transformers")
_DIGITS = 5  # of numbers among answers, which are compared with each other
_SAME = {"name", "kind", "study"}  # of sweeps whose records may stand in one file
_IDENTITY = ("version", "sweep", "model", "weights", "data")  # of what a file's header has


@dataclass(frozen=True)
class Record:
    """What a finished run says about itself.

    ``content`` is all that was written: ``scores[split][metric]``, None where undefined,
    ``answers[split]["said"]`` and ``["right"]``, ``seconds``, ``threshold``, ``strengths`` …
    """

    task: str
    variant: str
    seed: int
    content: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from the other records of its sweep."""
        return self.task, self.variant, self.seed

    @property
    def scores(self) -> Mapping[str, Mapping[str, float | None]]:
        return self.content["scores"]

    def value(self, split: str, metric: str) -> float | None:
        """Return a score, or seconds: of the training, or of all a run does where it says none."""
        if metric == "seconds":
            return float(self.content["seconds"])
        return self.scores.get(split, {}).get(metric)


@dataclass(frozen=True)
class Results:
    """A sweep, the first line of its file, and its finished runs in the sweep's order."""

    sweep: Sweep
    header: Mapping[str, Any]
    records: tuple[Record, ...]

    def of(self, task: str, variant: str) -> dict[int, Record]:
        """Return the records of a variant on a task, by seed."""
        return {r.seed: r for r in self.records if (r.task, r.variant) == (task, variant)}


def read_results(path: str | Path) -> Results:
    """Read the file of a sweep, or of an experiment of earlier versions; refuse what is none."""
    where = f"results {path}"
    # splitlines would also split at what JSON leaves as it is within a text, as U+2028
    lines = read_text(path).removesuffix("\n").split("\n")
    found = [parse_object(line, f"{where}, line {n}") for n, line in enumerate(lines, start=1)]
    header, contents = found[0], found[1:]
    if header.get("version") not in (1, VERSION):
        raise ValueError(f"{where}: version must be 1 or {VERSION}, got {header.get('version')!r}")
    old = header["version"] == 1
    try:
        content = _of_version_1(header["grid"]) if old else header["sweep"]
        name = "arm" if old else "variant"
        records = [Record(c["task"], c[name], c["seed"], c) for c in contents if c["scores"]]
    except KeyError as error:
        raise ValueError(f"{where} must be those of a sweep, but {error} is missing") from None
    sweep = parse_sweep(content, where)
    order = [(task, variant.name) for task in sweep.tasks for variant in sweep.variants]
    seen = set[tuple[str, str, int]]()
    for record in records:
        if (record.task, record.variant) not in order or record.key in seen:
            raise ValueError(
                f"{where}: {', '.join(map(str, record.key))} is there twice, or unknown"
            )
        seen.add(record.key)
    records.sort(key=lambda r: (order.index(r.key[:2]), r.seed))
    seeds = {*sweep.all_seeds, *(record.seed for record in records)}  # some may be added later
    sweep = sweep.model_copy(update={"seeds": tuple(sorted(seeds))})
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
    """The file of a sweep that is being run; several processes and machines may share it."""

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
        """Return the keys of finished runs; refuse a file of other runs or settings than these."""
        if not self.path.exists():
            return set()
        results = read_results(self.path)
        asked = {run.key: run for run in runs}
        known = {key[:2] for key in asked}
        old = {**results.header, "sweep": results.sweep.model_dump(mode="json", include=_SAME)}
        new = {**self.header, "sweep": self.sweep.model_dump(mode="json", include=_SAME)}
        self._refuse({name: old.get(name) for name in _IDENTITY}, {n: new[n] for n in _IDENTITY})
        for record in results.records:
            if record.key[:2] not in known:
                raise ValueError(
                    f"{self.path} holds {record.task}, {record.variant}, which is no run of this "
                    "sweep: name another folder"
                )
            if record.key in asked:
                settings = json.loads(json.dumps(asked[record.key].settings))
                self._refuse(record.content["settings"], settings)
        return {record.key for record in results.records}

    def _refuse(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        found, asked = (json_normalize([x]).to_dict("records")[0] for x in (old, new))
        for name in sorted(found.keys() | asked.keys()):
            if found.get(name) != asked.get(name):
                raise ValueError(
                    f"{self.path} holds results with {name}={found.get(name)!r}, not "
                    f"{asked.get(name)!r}: name another folder"
                )

    def add(self, run: Run, content: Mapping[str, Any]) -> None:
        """Write the record of a run, whose lock the caller holds; the file is whole at any time."""
        record = {"task": run.task, "variant": run.variant.name, "seed": run.seed}
        record |= {"settings": run.settings, **content}
        answers = json.dumps(content.get("answers", {}))
        record["answers"] = json.loads(
            answers, parse_float=lambda x: float(f"{float(x):.{_DIGITS}g}")
        )
        line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        header = json.dumps(self.header, ensure_ascii=False)  # tasks and variants may be new
        with self._lock:
            text = read_text(self.path) if self.path.exists() else ""
            lines = text.removesuffix("\n").split("\n")[1:]
            write_text(self.path, "\n".join([header, *lines, line]) + "\n")


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
