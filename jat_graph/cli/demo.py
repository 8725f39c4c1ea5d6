"""The demonstration: one sentence pair looked at, and a small comparison on generated text."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jat_graph.config import JatConfig
from jat_graph.hf import attach
from jat_graph.inspection.reports import Jump
from jat_graph.inspection.text import inspect_text, view_head
from jat_graph.lab.comparison import Comparison, compare
from jat_graph.lab.statistics import verdict
from jat_graph.tasks.agreement import NUM_ATTRACTORS
from jat_graph.training import TrainingOptions, calibrate_on_task
from jat_graph.training.pretrained import load_config, quiet
from jat_graph.training.results import versions
from jat_graph.training.storage import RESULTS_FILE, prepare_folder, write_json

PAIR = "Book costs more than pencil. Book costs less than computer."
WORDS = frozenset({"computer", "pencil"})
TASK = "agreement"
# Below this the base model has not learnt the task, and a comparison would compare noise.
WANTED_ACCURACY = 0.8
PICTURE = "head.png"
CALIBRATION_BATCHES = 10  # two of them are held out
SHOWN_JUMPS = 8

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PairJump:
    """A jump between the two words, with its head and the density of that head's graph."""

    layer: int
    head: int
    density: float
    jump: Jump

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types."""
        place = {"layer": self.layer, "head": self.head, "density": self.density}
        return {**place, **self.jump.to_dict()}


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration found."""

    density: float  # that the thresholds were calibrated for, on the generated sentences
    config: JatConfig  # with which the sentence pair was looked at
    jumps: tuple[PairJump, ...]  # between *computer* and *pencil*, the largest gain first
    picture: Path  # of one head
    comparison: Comparison  # base against jump model on the generated task
    base_accuracy: float | None  # mean on one attractor; None if undefined
    seconds: float

    @property
    def compared(self) -> bool:
        """Whether the base model learnt the task well enough for a comparison to mean anything."""
        return self.base_accuracy is not None and self.base_accuracy >= WANTED_ACCURACY

    @property
    def verdicts(self) -> tuple[str, ...]:
        """What the comparison shows, one sentence for each number of attractors."""
        if self.compared:
            return tuple(_verdict(self.comparison, count) for count in NUM_ATTRACTORS)
        reached = "nothing" if self.base_accuracy is None else f"{self.base_accuracy:.1%}"
        return (
            f"Nothing was compared: the base model reached {reached} on one attractor, "
            f"and below {WANTED_ACCURACY:.0%} it has not learnt the task.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types."""
        return {
            "text": PAIR,
            "density": self.density,
            "config": self.config.to_dict(),
            "jumps": [pair.to_dict() for pair in self.jumps],
            "picture": self.picture.name,
            "compared": self.compared,
            "verdicts": list(self.verdicts),
            "comparison": self.comparison.to_dict(),
            "seconds": self.seconds,
            "versions": versions(),
        }


def default_options(model: str, folder: str | Path) -> TrainingOptions:
    """The comparison's options: the budget in which the base model learns the task."""
    return TrainingOptions(
        model=model,
        task=TASK,
        output_dir=str(folder),
        epochs=1,
        batch_size=16,
        learning_rate=1e-4,
        max_length=32,
        select_best=False,
        eval_batch_size=200,
    )


def demonstrate(
    model: str,
    folder: str | Path,
    *,
    density: float = 0.1,
    seeds: tuple[int, ...] = (0, 1, 2),
    options: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Demonstration:
    """Look at the paper's sentence pair, then compare base and jump model on generated text.

    Thresholds are calibrated on the generated training sentences, for all heads to look at the
    pair, and for the first four heads, the paper's number, to train.

    Reference:
        The pair is the example of Zhou et al. 2022; the task is that of Linzen, Dupoux and
        Goldberg, TACL 2016, with sentences of our own.
    """
    start = time.monotonic()
    place = prepare_folder(folder)
    with tempfile.TemporaryDirectory(dir=place, prefix=".runs-") as runs:
        settings = replace(default_options(model, runs), **(options or {}))
        logger.info("Calibrating all heads to density %.2f on generated sentences.", density)
        every_head = JatConfig(heads=load_config(model).num_attention_heads)
        config = calibrate_on_task(settings, every_head, density, batches=CALIBRATION_BATCHES)
        jumps, picture = look_at_pair(model, config, place / PICTURE)
        logger.info("Training base and jump model on generated sentences: %d seeds.", len(seeds))
        arm = calibrate_on_task(settings, JatConfig(), density, batches=CALIBRATION_BATCHES)
        comparison = compare(settings, arm, seeds, progress=progress)
    summary = comparison.summary("base", accuracy_split(1), comparison.primary_metric)
    accuracy = None if summary is None else summary.mean
    seconds = round(time.monotonic() - start, 1)
    found = Demonstration(density, config, jumps, picture, comparison, accuracy, seconds)
    write_json(place / RESULTS_FILE, found.to_dict())
    return found


def look_at_pair(model: str, config: JatConfig, picture: Path) -> tuple[tuple[PairJump, ...], Path]:
    """The jumps between *computer* and *pencil*, and a picture of the head with the largest gain.

    Where no head joins the two words, the picture shows the first jump head.
    """
    from transformers import AutoModel, AutoTokenizer

    from jat_graph.viz import draw_head, save_figure

    with quiet():
        loaded, tokenizer = AutoModel.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    attach(loaded, config)
    report = inspect_text(loaded, tokenizer, PAIR, top=10_000, special_tokens=True)
    found = [
        PairJump(head.layer, head.head, head.density, jump)
        for head in report.heads
        for jump in head.jumps
        if {jump.query.text.lower(), jump.key.text.lower()} == WORDS
    ]
    found.sort(key=lambda pair: -pair.jump.gain)
    layer, head = (found or report.heads)[0].layer, (found or report.heads)[0].head
    view = view_head(loaded, tokenizer, PAIR, layer=layer, head=head, special_tokens=True)
    marked = tuple(pair.jump for pair in found if (pair.layer, pair.head) == (layer, head))
    if marked:
        view = replace(view, report=replace(view.report, jumps=marked))
    return tuple(found), save_figure(draw_head(view), picture)


def show(found: Demonstration) -> None:
    """Print the jumps between the two words, and accuracy by number of attractors."""
    _show_pair(found)
    _show_comparison(found)


def accuracy_split(attractors: int) -> str:
    """The dev set with so many attractors."""
    return f"validation_{attractors}"


def _show_pair(found: Demonstration) -> None:
    console = Console()
    console.print(f"\n[bold]{escape(PAIR)}[/bold]")
    console.print(
        f"Every head jumps; thresholds join {found.density:.0%} of the token pairs in generated "
        "sentences."
    )
    if not found.jumps:
        console.print("No head joins computer and pencil at this density.")
        return
    heads = {(pair.layer, pair.head) for pair in found.jumps}
    console.print(f"{len(heads)} heads join computer and pencil. The largest gains:")
    table = Table("layer", "head", "density", "jump", "before", "after", "stepping stones")
    for pair in found.jumps[:SHOWN_JUMPS]:
        table.add_row(*_pair_cells(pair))
    console.print(table)


def _pair_cells(pair: PairJump) -> tuple[str, ...]:
    jump = pair.jump
    stones = ", ".join(
        f"{stone.token.text} ({stone.query_score:+.1f}, {stone.key_score:+.1f})"
        for stone in jump.stones
    )
    return (
        str(pair.layer),
        str(pair.head),
        f"{pair.density:.1%}",
        f"{jump.query.text} → {jump.key.text}",
        f"{jump.before:.1%}",
        f"{jump.after:.1%}",
        escape(stones),
    )


def _show_comparison(found: Demonstration) -> None:
    console, comparison = Console(), found.comparison
    metric, count = comparison.primary_metric, len(comparison.seeds)
    table = Table("attractors", *comparison.runs, title=f"Accuracy, mean of {count} seeds")
    for attractors in NUM_ATTRACTORS:
        split = accuracy_split(attractors)
        summaries = (comparison.summary(arm, split, metric) for arm in comparison.runs)
        cells = ("undefined" if s is None else f"{s.mean:.1%}" for s in summaries)
        table.add_row(str(attractors), *cells)
    console.print(table)
    for sentence in found.verdicts:
        console.print(sentence)


def _verdict(comparison: Comparison, attractors: int) -> str:
    """What one number of attractors shows, as a sentence."""
    metric = comparison.primary_metric
    difference = comparison.difference("jump", accuracy_split(attractors), metric)
    measure = f"{metric} on {attractors} attractor{'' if attractors == 1 else 's'}"
    if difference is None:
        return f"Nothing can be said: {measure} is undefined in at least one run."
    return verdict("jump", measure, difference)
