"""What a sweep is, read from a TOML file and checked: variants × tasks × seeds; and one run."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jat_graph.core.files import read_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent
TUNING_SEED = 9999  # of the runs that ρ is chosen by; those that are reported have seeds below
# Options of run scripts, where a sweep says nothing.
DEFAULTS: Mapping[str, Any] = {
    "warmup_steps": 0.1,  # a share of all steps
    "weight_decay": 0.01,
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 64,
    "save_strategy": "epoch",  # a run that is interrupted goes on from there
    "save_total_limit": 1,
}

ModelT = TypeVar("ModelT", bound=BaseModel)
Kind = Literal[
    "train", "connections", "far-recall", "partners", "reading", "scratch", "trees",
    "programs", "tables", "graphs",
]  # fmt: skip
HeadKind = Literal[
    "none", "paper", "released", "released-efficient", "efficient", "stones", "clustered",
    "triplet", "gfsa", "ppr", "nexus",
]  # fmt: skip


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Variant(_Strict):
    """One line of a table: what kind of heads a model has, and how it is trained.

    ``"triplet"``, ``"gfsa"`` and ``"nexus"`` are for small models alone, ``"ppr"`` is in records
    only. ``tune`` chooses ρ, or takes over that of the variant it names.
    """

    name: str
    heads: HeadKind = "none"
    settings: dict[str, Any] = {}
    options: dict[str, Any] = {}
    tune: bool | str = False
    density: float | None = Field(default=None, gt=0, lt=1)
    line: str | None = None
    x: float | None = None


class Tuning(_Strict):
    """Which ρ are tried, and the share of the training data that they are scored on."""

    thresholds: tuple[float, ...] = Field(min_length=1)
    held_out: float = Field(default=0.1, gt=0, lt=1)


class Paper(_Strict):
    """What the paper prints: ``scores[variant][task]``; ``quoted`` are names of models not run."""

    model: str = ""
    scores: dict[str, dict[str, float | dict[str, float]]] = {}
    quoted: tuple[str, ...] = ()


class Question(_Strict):
    """By how much a variant has to be better than the base: in points, or the measure's unit."""

    least: float | dict[str, float]
    family: int | None = None  # comparisons that are corrected together, those elsewhere, too
    tasks: tuple[str, ...] = ()


class Sweep(_Strict):
    """A sweep, as its TOML file describes it; the first variant is the base."""

    name: str = Field(pattern=r"^\w[\w.-]*$")
    title: str = Field(min_length=1)
    kind: Kind = "train"
    tasks: tuple[str, ...] = Field(min_length=1)
    variants: tuple[Variant, ...] = Field(min_length=1)
    seeds: int | tuple[int, ...] = 3
    source: str = ""
    columns: tuple[str, ...] = ()  # metrics that a table shows
    pairs: tuple[tuple[str, str], ...] = ()
    mean: bool | None = None
    x_label: str = ""
    options: dict[str, Any] = {}  # of the run scripts
    task_options: dict[str, dict[str, Any]] = {}
    study: dict[str, Any] = {}  # what the script of its kind reads
    tuning: Tuning | None = None
    paper: Paper = Paper()
    question: Question | None = None

    @property
    def base(self) -> Variant:
        """The variant that the others are compared with."""
        return self.variants[0]

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of a variant's runs on a task."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def variant(self, name: str) -> Variant:
        """Return the variant of a name."""
        found = {variant.name: variant for variant in self.variants}
        if name not in found:
            known = ", ".join(map(repr, found))
            raise ValueError(f"variant of sweep {self.name} must be one of {known}, got {name!r}")
        return found[name]

    def base_of(self, variant: Variant) -> Variant:
        """Return what a variant is compared with: the base, or that of its place on a line."""
        line = self.base.line
        same = (one for one in self.variants if line and one.line == line and one.x == variant.x)
        return next(same, self.base)


@dataclass(frozen=True)
class Run:
    """One variant on one task with one seed, in a folder of the sweep's ``output``."""

    sweep: Sweep
    task: str
    variant: Variant
    seed: int
    output: Path
    model: str | None = None  # where runs do not make their own
    data_dir: Path | None = None  # or the Hub is asked

    def __str__(self) -> str:
        return f"{self.task}, {self.variant.name}, seed {self.seed}"

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from the other runs of its sweep."""
        return self.task, self.variant.name, self.seed

    @property
    def folder(self) -> Path:
        """Where it is run."""
        names = folder_name(self.task), folder_name(self.variant.name)
        return self.output.joinpath("runs", *names, f"seed-{self.seed}")

    @property
    def options(self) -> dict[str, Any]:
        """The options of its script; the variant's own come before the task's and the sweep's."""
        own = self.sweep.task_options.get(self.task, {})
        return {**DEFAULTS, **self.sweep.options, **own, **self.variant.options}

    def count(self, name: str, default: int) -> int:
        """Return an option that counts something."""
        value = self.options.get(name, default)
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be at least 1, got {value!r}")
        return value

    def refuse_model(self) -> None:
        """Refuse a model where runs make their own."""
        if self.model is not None:
            raise ValueError(f"sweep {self.sweep.name} makes its own models: leave out --model")

    @property
    def settings(self) -> dict[str, Any]:
        """What its result depends on, within its sweep."""
        variant = self.variant.model_dump(include={"heads", "settings", "density"})
        found: dict[str, Any] = {"options": self.options, **variant}
        if self.variant.tune and self.sweep.tuning is not None:
            found["tuning"] = self.sweep.tuning.model_dump(mode="json")
        if isinstance(self.variant.tune, str):
            chooser = self.sweep.variant(self.variant.tune)
            found["tuned as"] = Run(self.sweep, self.task, chooser, 0, self.output).settings
        return found


def validate(kind: type[ModelT], content: Any, where: str) -> ModelT:
    """Return an object of a kind; refuse in one line what does not fit."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        index, got = ".".join(map(str, first["loc"])), repr(first["input"])[:60]
        raise ValueError(f"{where}: {index}: {first['msg']}, got {got}") from None


def parse_sweep(content: Mapping[str, Any], where: str) -> Sweep:
    """Return the sweep that a file describes; refuse one that could not be run, or reported."""
    sweep = validate(Sweep, content, where)
    for what, names in (("tasks", sweep.tasks), ("variants", [v.name for v in sweep.variants])):
        folders = {folder_name(name) for name in names} - {""}
        if len(folders) < len(names):
            raise ValueError(f"{where}: {what} must differ in letters, got {', '.join(names)}")
    seeds = sweep.all_seeds
    if not seeds or len(set(seeds)) < len(seeds) or not 0 <= min(seeds) <= max(seeds) < TUNING_SEED:
        wanted = f"one or more different numbers from 0 to {TUNING_SEED - 1}"
        raise ValueError(f"{where}: seeds must be {wanted}, got {sweep.seeds}")
    asked = () if sweep.question is None else sweep.question.tasks
    for task in (*sweep.task_options, *asked):
        if task not in sweep.tasks:
            raise ValueError(f"{where}: tasks must have {task!r}, which it names, got none")
    for name in (name for pair in sweep.pairs for name in pair):
        sweep.variant(name)
    choosers = [variant.name for variant in sweep.variants if variant.tune is True]
    for variant in (variant for variant in sweep.variants if variant.tune):
        if sweep.tuning is None or variant.density is not None:
            wanted = "which needs [tuning] and excludes density"
            raise ValueError(f"{where}: variant {variant.name!r} is tuned, {wanted}")
        if variant.tune is not True and variant.tune not in choosers:
            wanted = "name a variant with tune = true"
            raise ValueError(f"{where}: tune must {wanted}, got {variant.tune!r}")
    return sweep


def read_sweep(name: str) -> Sweep:
    """Return a sweep by the name of a file in this folder, or from one that ends in ``.toml``.

    A file that says ``like = "glue"`` has all of that sweep which it does not say itself.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not name.endswith(".toml") and not path.exists():
        known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.toml")))
        raise ValueError(f"sweep must be one of {known} or a file FILE.toml, got {name!r}")
    try:
        content = tomllib.loads(read_text(path))
    except RecursionError:
        raise ValueError(f"sweep {path} must be TOML, got brackets nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"sweep {path} must be TOML: {str(error).splitlines()[0]}") from None
    if (like := content.pop("like", None)) is not None:
        if not isinstance(like, str) or like.endswith(".toml"):
            raise ValueError(f"sweep {path.name}: like must be a sweep's name, got {like!r}")
        content = read_sweep(like).model_dump(exclude_unset=True) | content
    return parse_sweep(content, f"sweep {path.name}")


def folder_name(name: str) -> str:
    """Return the folder of a variant or a task."""
    plain = name.lower().replace("†", "-dagger").replace("³", "3").replace("²", "2")
    return re.sub(r"[^\w.+]+", "-", plain).strip("-.")
