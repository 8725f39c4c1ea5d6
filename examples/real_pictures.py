"""Draw what a real decoder loses and saves where it reads fewer keys, or what it still finds.

``python -m examples.real_pictures --losses LESS.jsonl --times PRETRAINED.json --plot FILE.png`` has
numbers of ``examples.real_decoders`` over the share of keys that are read, and beside them times of
``examples.bench pretrained``; with ``--answers RULER.jsonl`` instead it has what
``examples.real_answers`` found, by depth and length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from examples import questions
from examples.bench import read_results
from examples.benchmarks.tables import frame
from examples.options import example, option
from examples.questions import Row
from examples.real_answers import counting
from examples.real_decoders import BIN, DENSE, KEYS, TREE
from jat_graph.core.files import check_picture
from jat_graph.looking.viz.figures import PAGE, Axes, Figure, add_bar, new_figure, save_figure

NAMES = {  # of attention, as the pictures have them
    DENSE: "all keys",
    TREE: "tree (this library)",
    "channels": "best channels (SparQ)",
    "best": "own best keys",
    "best-rest": "own best, and the rest",
    "bounds": "blocks by bounds (Quest)",
    "means": "blocks by means",
    "queries": "clusters of queries",
    "window": "window, first tokens",
    "lines": "vertical, slash lines",
}
OURS = NAMES[TREE]
TOLD_APART = ("#222222", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#e69f00")
TOLD_APART += ("#8c6d31", "#5d3a9b", "#999999")
COLOURS = dict(zip(NAMES.values(), TOLD_APART, strict=True))
STRETCH = 2 * BIN  # tokens of a point
ONE_PLACE = ("needle, ", "keys, ")  # tasks whose answers stand at one depth


@dataclass
class Options:
    """What is asked for."""

    plot: Path = option("picture to write")
    losses: Path | None = option("numbers of real_decoders", None)
    times: Path | None = option("results of the benchmark pretrained", None)
    answers: Path | None = option("answers of real_answers", None)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Draw one of both pictures."""
    check_picture(args.plot, "plot")
    if args.answers is not None:
        figure = draw_answers(questions.read_runs(args.answers, "answers of real_answers", bool))
    elif args.losses is not None:
        losses = questions.read_runs(args.losses, "numbers of real_decoders", bool)
        times = None if args.times is None else frame(read_results(args.times))
        figure = draw_losses(losses, times)
    else:
        raise ValueError("losses or answers must be a file, got neither")
    yield str(save_figure(figure, args.plot))


def name_of(attention: str) -> str:
    """Return what a picture calls a kind of attention."""
    return NAMES.get(attention) or NAMES[attention.split(":")[1]]


def draw_losses(rows: list[Row], times: DataFrame | None) -> Figure:
    """Draw losses over the share of keys that are read, and times over the length, if given."""
    figure = new_figure(PAGE, 4.2)
    left, *others = figure.subplots(1, 1 if times is None else 2, squeeze=False).flat
    longest = max(row["length"] for row in rows)
    points = -(-longest // STRETCH)
    texts: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        if row["length"] == longest:
            own = texts.setdefault((row["kind"], row["text"]), {})
            own[name_of(row["attention"])] = np.array(row["loss"])
    share = np.minimum(1, KEYS / (STRETCH * (np.arange(points) + 0.5)))
    for name in [*NAMES.values()][:0:-1]:  # this library's is drawn last
        found = [x[name] - x[NAMES[DENSE]] for x in texts.values() if name in x]
        if not found:
            continue
        more = [some.mean() for some in np.array_split(np.mean(found, 0), points)]
        left.plot(share, more, ".-", c=COLOURS[name], lw=2.4 if name == OURS else 1, label=name)
    left.set_xscale("log")
    left.set_xticks([0.1, 0.2, 0.5, 1.0], ["10 %", "20 %", "50 %", "all"], minor=False)
    left.set_yscale("symlog", linthresh=0.01)
    left.set_ylim(-0.004, 0.4)
    left.set_yticks([0, 0.005, 0.01, 0.1], ["0", "0.005", "0.01", "0.1"])
    left.minorticks_off()
    left.set_title(f"What is lost: {longest} tokens", fontsize=8)
    left.set_xlabel("share of the keys so far that a token reads", fontsize=8)
    left.set_ylabel("loss above that of all keys, nats a token", fontsize=8)
    for right in others:
        draw_times(right, times)
    for axis in (left, *others):
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
        place = {"loc": "upper center", "bbox_to_anchor": (0.45, -0.18)}
        axis.legend(fontsize=7, ncols=2, frameon=False, columnspacing=0.8, **place)
    return figure


def draw_times(axis: Axes, times: Any) -> None:
    """Draw seconds to the first and to the next token over the length."""
    for what, mark in (("first token", "o"), ("next token", "s")):
        own = times[times["what"] == what].set_index("length").sort_index()
        for side, name in (("theirs", NAMES[DENSE]), ("ours", OURS)):
            label = f"{what}, {name.partition(' (')[0]}"
            axis.plot(own[side].dropna(), f"{mark}-", c=COLOURS[name], ms=3, lw=1.4, label=label)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_title("What it takes: the whole model, two cores", fontsize=8)
    axis.set_xlabel("tokens of the prompt", fontsize=8)
    axis.set_ylabel("seconds", fontsize=8)


def draw_answers(rows: list[Row]) -> Figure:
    """Draw the share of answers that are found, by depth and length, of tasks that count."""
    scores = counting(rows)
    tasks = scores.index.get_level_values("task").str
    own = scores[tasks.startswith(ONE_PLACE)].groupby(["depth", "length"]).mean()
    if own.empty:
        raise ValueError("answers must have tasks with a needle that all keys find, got none")
    columns = min(5, own.shape[1])
    lines = -(-own.shape[1] // columns)
    figure = new_figure(PAGE, 1.9 * lines + 0.6)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat
    for panel, name in zip(panels, own, strict=False):
        found = own[name].unstack("length")
        image = panel.imshow(found, vmin=0, vmax=1, cmap="cividis", aspect="auto")
        panel.set_title(name_of(name).partition(" (")[0], fontsize=7)
        panel.set_xticks(range(found.shape[1]), map(str, found.columns), rotation=90)
        panel.set_yticks(range(len(found)), [f"{depth:.0%}" for depth in found.index])
        panel.tick_params(labelsize=7)
    add_bar(
        figure, image, [*figure.axes], "share found; tokens below, depth in the text at the left"
    )
    return figure


if __name__ == "__main__":
    main()
