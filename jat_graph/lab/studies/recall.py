"""Cells of the kinds ``partners`` and ``far-recall``: small models from scratch recall values."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean

import torch

from jat_graph.checks.numbers import check_choice
from jat_graph.lab.parsing import parse
from jat_graph.lab.studies.arms import GridArm, build_heads, check_only_heads
from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.costs import Costs, Spent
from jat_graph.lab.studies.curves import Curves
from jat_graph.lab.studies.grid import Grid, check_columns
from jat_graph.lab.studies.kinds import Caption, Kind, enter_kind
from jat_graph.lab.studies.neighbour_attention import NexusConfig
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.small_reader import (
    CHANNELS,
    HEADS,
    ReaderHeads,
    ReaderTraining,
    SmallReader,
    learning_curve,
)
from jat_graph.tasks import FarRecallTask, PartnersTask, RecallTask
from jat_graph.training.estimate import TRAINING_TO_EVALUATION, Cost, time_step
from jat_graph.training.heads import BothHeads
from jat_graph.training.options import TrainingOptions

REPORTED = "test"
_MOST = 10  # steps that are timed at most


@dataclass(frozen=True)
class Setting:
    """What a cell's task says: how deep and wide the model is, and the sequences."""

    layers: int
    task: RecallTask
    channels: int


@dataclass(frozen=True)
class ReaderJob:
    """A small model that is trained and tested."""

    setting: Setting
    training: ReaderTraining
    heads: ReaderHeads
    device: str

    size = 1.0  # all cells of a setting have as many steps

    def time(self, patience: float) -> Cost:
        """Time a step."""
        whole = self.training.batch_size
        curves: dict[int, Iterator[object]] = {}  # nothing is drawn before the first step
        step = time_step(
            lambda rows: next(curves.setdefault(rows, self._steps(rows))), whole, patience
        ).seconds
        tests = math.ceil(self.training.steps / self.training.every)
        tested = tests * self.setting.task.test_size / whole
        return Cost(step * (self.training.steps + tested / TRAINING_TO_EVALUATION))

    def _steps(self, rows: int) -> Iterator[object]:
        """Take steps of so many sequences, each with a test of one or two."""
        return learning_curve(
            replace(self.setting.task, test_size=1),
            self.heads,
            layers=self.setting.layers,
            channels=self.setting.channels,
            training=replace(self.training, steps=_MOST, every=1, batch_size=rows),
            device=self.device,
        )


class Recall(Kind):
    """A small model from scratch learns a task of ids and is tested on the way.

    A cell's task names the number of layers and the sequences, as ``"1 layer, 5 pairs"``, and the
    number of features if it is not 64, as ``"1 layer, 5 pairs, 128 features"``. The table of the
    kind's name has the fields of :class:`jat_graph.experiments.ReaderTraining`. Beside the last
    test, ``scores["step 100"]`` and so on have the ones on the way.
    """

    from_scratch = True
    reads_data = False
    task_is_model = True

    def __init__(self, name: str, unit: str, make: Callable[[int], RecallTask]) -> None:
        self.name, self.unit, self.make = name, unit, make

    def check(self, grid: Grid, where: str) -> None:
        """Refuse settings that cannot be read, and arms that differ in more than their heads."""
        parse(ReaderTraining, grid.own, f"{where}, [{self.name}]")
        if grid.training or grid.task_training:
            raise ValueError(f"{where} must have no [training]: options are in [{self.name}]")
        settings = [self.setting(name, where) for name in grid.tasks]
        sizes = {f"accuracy_{size}" for setting in settings for size in setting.task.sizes}
        check_columns(grid, ("accuracy", *sorted(sizes)), where)
        by_width = {setting.channels: setting for setting in settings}
        for arm, setting in product(grid.arms, by_width.values()):
            _check_arm(arm, setting, f"{where}, arm {arm.name!r}")

    def check_plan(self, plan: Plan) -> None:
        """Refuse a model and a device that are none of ours."""
        plan.check_no_model()
        check_choice("device", plan.device, ("auto", "cpu"))

    def setting(self, name: str, where: str) -> Setting:
        """Read the name of a setting."""
        width = r"(?:, ([1-9]\d*) features)?"
        found = re.fullmatch(rf"([1-9]\d?) layers?, ([1-9]\d*) {self.unit}{width}", name)
        if found is None:
            raise ValueError(f"{where}: tasks must be '1 layer, 5 {self.unit}' …, got {name!r}")
        return Setting(int(found[1]), self.make(int(found[2])), int(found[3] or CHANNELS))

    def run_cell(self, cell: Cell, plan: Plan, folder: Path, progress: bool) -> Record:
        """Train and test a model; it is not kept."""
        setting, training = self._chosen(cell, plan)
        heads, device = _heads(plan.grid.arm(cell.arm)), _device(plan)
        begin = time.monotonic()
        curve = dict(
            learning_curve(
                setting.task,
                heads,
                layers=setting.layers,
                channels=setting.channels,
                training=training,
                seed=cell.seed,
                device=device,
            )
        )
        by_step = {f"step {step}": scores for step, scores in curve.items()}
        return Record(
            task=cell.task,
            arm=cell.arm,
            seed=cell.seed,
            scores={REPORTED: curve[training.steps], **by_step},
            seconds=time.monotonic() - begin,
            steps=training.steps,
            device=device,
            heads=None if heads is None else heads.to_dict(),
            examples={
                "train": training.steps * training.batch_size,
                REPORTED: setting.task.test_size,
            },
        )

    def job(
        self, cell: Cell, plan: Plan, scratch: Path, lesson: TrainingOptions | None = None
    ) -> ReaderJob:
        """Train one model."""
        setting, training = self._chosen(cell, plan)
        return ReaderJob(setting, training, _heads(plan.grid.arm(cell.arm)), _device(plan))

    def shown(self, record: Record) -> Mapping[str, Iterable[str]]:
        """What the last test said; where all sequences are of one size, that once."""
        scores = record.scores[REPORTED]
        once = "accuracy" in scores and len(scores) == 2
        return {REPORTED: ["accuracy"] if once else scores}

    def asked(self, grid: Grid, task: str) -> str:
        """How often a model is right on the largest sequences."""
        sizes = self.setting(task, "grid").task.sizes
        return f"accuracy_{max(sizes)}" if len(sizes) > 1 else "accuracy"

    def curves(self, results: Results) -> Mapping[str, Curves]:
        """How each seed learns the largest sequences of each setting."""
        panels = {}
        for name in results.grid.tasks:
            task = self.setting(name, "grid").task
            size = max(task.sizes)
            found = {arm.name: results.of(name, arm.name) for arm in results.grid.arms}
            lines = {
                arm: [_curve(record, self.asked(results.grid, name)) for record in records]
                for arm, records in found.items()
                if records
            }
            if lines:
                panels[name] = Curves(lines, task.chance(size))
        return panels

    def costs(self, results: Results) -> Mapping[str, Costs]:
        """What the arms took whose settings differ in their layers alone."""
        grid = results.grid
        depths: dict[str, list[str]] = {}
        for name in grid.tasks:
            if any(record.task == name for record in results.records):
                depths.setdefault(name.partition(", ")[2], []).append(name)
        return {
            rest: {
                arm.name: spent
                for arm in grid.arms
                if (spent := list(self._spent(results, arm, names)))
            }
            for rest, names in depths.items()
            if len(names) > 1
        }

    def _spent(self, results: Results, arm: GridArm, names: Iterable[str]) -> Iterator[Spent]:
        for name in names:
            if records := results.of(name, arm.name):
                setting, metric = self.setting(name, "grid"), self.asked(results.grid, name)
                yield Spent(
                    _count_weights(setting, arm),
                    min(record.seconds for record in records),  # others were disturbed
                    fmean(record.scores[REPORTED][metric] or 0.0 for record in records),
                )

    def caption(self, results: Results) -> Caption:
        """Say what chance is."""
        grid = results.grid
        settings = [self.setting(name, "grid") for name in grid.tasks]
        chances = {
            size: f"{setting.task.chance(size):.1%}"
            for setting in settings
            for size in setting.task.sizes
            if not grid.columns or f"accuracy_{size}" in grid.columns
        }
        known = ", ".join(f"{chance} with {size}" for size, chance in sorted(chances.items()))
        values = settings[0].task.values
        return Caption(
            models="Small models from scratch",
            data="sequences made by the library",
            remarks=(
                f"To guess any value is right once in {values} times; the commonest of the values "
                f"that may be the answer is right {known}.",
                self._parameters(results),
            ),
        )

    def _parameters(self, results: Results) -> str:
        """Say how many numbers each arm learns, in the last setting that was run."""
        name = results.records[-1].task
        setting, counts = self.setting(name, "grid"), dict[int, list[str]]()
        for arm in results.grid.arms:
            counts.setdefault(_count_weights(setting, arm), []).append(arm.name)
        each = "; ".join(f"{count:,} ({', '.join(arms)})" for count, arms in counts.items())
        return f"Numbers that are learned with {name}: {each}."

    def _chosen(self, cell: Cell, plan: Plan) -> tuple[Setting, ReaderTraining]:
        where = f"grid {plan.grid.name!r}"
        own = parse(ReaderTraining, plan.grid.own, f"{where}, [{self.name}]")
        return self.setting(cell.task, where), own


enter_kind("partners", Recall("partners", "pairs", lambda pairs: PartnersTask(pairs=pairs)))
enter_kind(
    "far-recall", Recall("far-recall", "filler", lambda filler: FarRecallTask(filler=filler))
)


def _count_weights(setting: Setting, arm: GridArm) -> int:
    """How many numbers a model learns."""
    model = SmallReader(setting.task, setting.layers, _heads(arm), setting.channels)
    return sum(weight.numel() for weight in model.parameters())


def _curve(record: Record, metric: str) -> list[tuple[int, float]]:
    """The steps and the score after each."""
    return [
        (int(split.removeprefix("step ")), scores[metric] or 0.0)
        for split, scores in record.scores.items()
        if split != REPORTED
    ]


def _check_arm(arm: GridArm, setting: Setting, where: str) -> None:
    """Refuse what a small model's layers cannot have, or what sets arms apart beside them."""
    check_only_heads(arm, where)
    if arm.triplets is not None:
        raise ValueError(f"{where} must have heads of one kind, got triplet heads beside others")
    try:
        SmallReader(setting.task, 1, _heads(arm), setting.channels)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _heads(arm: GridArm) -> ReaderHeads:
    if arm.heads == "nexus":
        return NexusConfig()
    heads = build_heads(arm, layers=1, heads=HEADS)
    return None if isinstance(heads, BothHeads) else heads  # which no arm has


def _device(plan: Plan) -> str:
    found = None if plan.device == "cpu" else torch.accelerator.current_accelerator()
    return "cpu" if found is None else found.type
