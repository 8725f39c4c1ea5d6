"""The demonstration: one sentence pair looked at, and what one layer can learn."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from jat_graph.checks.numbers import check_integer
from jat_graph.config import JatConfig, PairGraph
from jat_graph.hf import attach
from jat_graph.inspection.reports import Jump
from jat_graph.inspection.text import inspect_text, view_head
from jat_graph.lab.studies.curves import Curves, draw_curves
from jat_graph.lab.studies.small_reader import ReaderTraining, learning_curve
from jat_graph.tasks import PartnersTask
from jat_graph.training.pretrained import quiet
from jat_graph.training.results import versions
from jat_graph.training.storage import RESULTS_FILE, prepare_folder, write_json

PAIR = "Book costs more than pencil. Book costs less than computer."
WORDS = frozenset({"computer", "pencil"})
PICTURE, CURVES = "head.png", "curves.png"
SHOWN_JUMPS = 8
TESTED = 500  # sequences

# One threshold for all heads, and half of the way: nothing is calibrated and nothing learnt.
LOOKED_AT = JatConfig.stones(strength=0.5)
ARMS: dict[str, JatConfig | None] = {
    "plain attention": None,
    # Their rule on standard scores: ρ = 6 on those of first weights would join nothing.
    "the paper's pairs": JatConfig(PairGraph(standardize=True, threshold=4.0), heads="all"),
    "stepping stones": JatConfig.stones(key_selection="all"),
}

Curve = list[tuple[int, dict[str, float]]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PairJump:
    """A jump between the two words, with its head and the density of that head's links."""

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

    jumps: tuple[PairJump, ...]  # between *computer* and *pencil*, the largest gain first
    task: PartnersTask  # what one layer is asked for
    curves: dict[str, Curve]  # by arm: steps, and the accuracy of each size
    pictures: tuple[Path, Path]  # of one head, and of the learning
    seconds: float

    def accuracy(self, arm: str, size: int) -> float:
        """The share of right answers for sequences of so many pairs, after the last step."""
        return self.curves[arm][-1][1][f"accuracy_{size}"]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types."""
        return {
            "text": PAIR,
            "config": LOOKED_AT.to_dict(),
            "jumps": [pair.to_dict() for pair in self.jumps],
            "arms": {name: c and c.to_dict() for name, c in ARMS.items()},
            "chance": {str(size): self.task.chance(size) for size in self.task.sizes},
            "curves": {
                name: [{"step": step, **scores} for step, scores in curve]
                for name, curve in self.curves.items()
            },
            "pictures": [picture.name for picture in self.pictures],
            "seconds": self.seconds,
            "versions": versions(),
        }


def demonstrate(
    model: str,
    folder: str | Path,
    *,
    pairs: int = 5,
    steps: int = 1500,
    seed: int = 0,
    progress: bool = True,
) -> Demonstration:
    """Look at the paper's sentence pair, then let one layer learn what takes plain attention two.

    Of the names in a sequence each must tell the value of its partner, with which it shares a hub:
    one layer with plain attention, with the paper's pairs, and with stepping stones.

    Reference:
        The sentence pair is the example of Zhou et al. 2022; the task is this library's.
    """
    start = time.monotonic()
    task = PartnersTask(pairs=pairs, test_size=TESTED)
    training = ReaderTraining(steps=steps, every=min(steps, max(1, steps // 20)))
    check_integer("seed", seed, least=0)
    place = prepare_folder(folder)
    jumps, picture = look_at_pair(model, LOOKED_AT, place / PICTURE)
    curves = {}
    for arm, config in ARMS.items():
        logger.info("Training one layer with %s: %d steps.", arm, steps)
        points = learning_curve(task, config, training=training, seed=seed)
        total = -(-steps // training.every)
        curves[arm] = list(track(points, description=arm, total=total, disable=not progress))
    figure = draw_curves(_panels(task, curves), "What one layer learns")

    from jat_graph.viz import save_figure

    pictures = picture, save_figure(figure, place / CURVES)
    seconds = round(time.monotonic() - start, 1)
    found = Demonstration(jumps, task, curves, pictures, seconds)
    write_json(place / RESULTS_FILE, found.to_dict())
    return found


def _panels(task: PartnersTask, curves: dict[str, Curve]) -> dict[str, Curves]:
    """The accuracy of each size, by arm and step."""
    return {
        f"{size} pair{'s' if size > 1 else ''} of names": Curves(
            {
                arm: [[(step, scores[f"accuracy_{size}"]) for step, scores in curve]]  # one seed
                for arm, curve in curves.items()
            },
            task.chance(size),
        )
        for size in task.sizes
    }


def look_at_pair(model: str, config: JatConfig, picture: Path) -> tuple[tuple[PairJump, ...], Path]:
    """The jumps between *computer* and *pencil*, and a picture of the head with the largest gain.

    Where no head joins the two words, the picture shows the first jump head.
    """
    from transformers import AutoModel, AutoTokenizer

    from jat_graph.viz import draw_head, save_figure

    with quiet():
        loaded, tokenizer = AutoModel.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    attach(loaded, config, tokenizer=tokenizer)
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
    """Print the jumps between the two words, and what each layer has learnt."""
    _show_pair(found)
    _show_learning(found)


def _show_pair(found: Demonstration) -> None:
    console = Console()
    console.print(f"\n[bold]{escape(PAIR)}[/bold]")
    console.print(
        "Every head jumps half of the way from a token over its stepping stones, the keys that it "
        f"scores {LOOKED_AT.graph.threshold:g} standard deviation above or below the rest."
    )
    if not found.jumps:
        console.print("No head joins computer and pencil.")
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


def _show_learning(found: Demonstration) -> None:
    console, last = Console(), found.curves["plain attention"][-1][0]
    console.print(
        "\nIn a sequence every name has a value, and shares a hub with one other name, its "
        "partner. Each name must tell its partner's value: two steps, for one layer."
    )
    title = f"Right answers of one layer after {last} steps"
    table = Table("pairs of names", *found.curves, "chance", title=title)
    for size in found.task.sizes:
        cells = (f"{found.accuracy(arm, size):.1%}" for arm in found.curves)
        table.add_row(str(size), *cells, f"{found.task.chance(size):.1%}")
    console.print(table)
    console.print(
        "It shows that one layer with stones can do what takes plain attention two. It does not "
        "show that texts ask for it."
    )
