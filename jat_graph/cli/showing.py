"""The command ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jat_graph.cli.demo import PAIR, Demonstration, PairJump, accuracy_split, demonstrate
from jat_graph.cli.inputs import default_model, has_terminal
from jat_graph.tasks.agreement import NUM_ATTRACTORS

SHOWN_JUMPS = 8


def demo_command(
    output: Annotated[Path, typer.Option(help="Folder for picture and results.")] = Path(
        "jat_graph_demo"
    ),
    model: Annotated[
        str | None, typer.Option(help="Folder or Hub name. Default: all-MiniLM-L6-v2.")
    ] = None,
    density: Annotated[float, typer.Option(help="Share of token pairs to join.")] = 0.1,
    seeds: Annotated[int, typer.Option(help="Seeds of the comparison.")] = 3,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training text.")] = None,
    train_samples: Annotated[int | None, typer.Option(help="Sentences to train on.")] = None,
) -> None:
    """Look at the paper's sentence pair, then compare base and jump model on generated text."""
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    changes = {"epochs": epochs, "max_train_samples": train_samples}
    options = {name: value for name, value in changes.items() if value is not None}
    found = demonstrate(
        model or default_model(),
        output,
        density=density,
        seeds=tuple(range(seeds)),
        options=options,
        progress=has_terminal(),
    )
    _show_pair(found)
    _show_comparison(found)
    Console().print(f"Picture and results are in {output.resolve()} ({found.seconds:.0f} s).")


def _show_pair(found: Demonstration) -> None:
    """Show the jumps between the two words, or say that there is none."""
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
    """Show accuracy by number of attractors, and what it means."""
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
