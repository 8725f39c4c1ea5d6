"""The command ``demo``: long texts on clusters, one sentence pair, and what one layer can learn."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from jat_graph.core.files import write_text
from jat_graph.core.progress import track_progress
from jat_graph.looking.cli.options import MINILM, ModelOption, cut_at, load_model
from jat_graph.looking.cli.tables import jump_cells

PAIR = "Book costs more than pencil. Book costs less than computer."
WORDS = {"computer", "pencil"}
SHOWN_JUMPS = 8
LENGTHS = [512, 2048, 4096, 8192]
ROUNDS = 2  # of both sides in turns


def demo_command(
    output: Annotated[
        Path, typer.Option("--output", "-o", file_okay=False, help="Folder for the results.")
    ] = Path("jat_graph_demo"),
    model: ModelOption = MINILM,
    length: Annotated[
        list[int] | None, typer.Option(min=2, help="Tokens of a text. Default: 512 to 8192.")
    ] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of names in a sequence, at most.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each layer.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and training data.")] = 0,
) -> None:
    """Show clusters on long texts, and what a layer learns by jumps.

    The demo measures time and fidelity of a pretrained model over the length of a text, and shows
    the jumps in the JAT paper's sentence pair. Then it trains layers with ordinary attention, with
    the paper's pairs, and with stepping stones: for each name in a sequence they must give the
    value of its partner, with which the name shares a hub.
    """
    start = time.monotonic()
    from jat_graph.jumps.config import JatConfig

    output.mkdir(parents=True, exist_ok=True)
    lengths = _read_long_texts(*load_model(model), length or LENGTHS, output)
    # One threshold for all heads, and half of the way: nothing is calibrated and nothing learnt.
    loaded, tokenizer = load_model(model, "stones", ["strength=0.5", "heads=all"])
    found = _look_at_pair(loaded, tokenizer, output / "head.png")
    variants: dict[str, JatConfig | None] = {
        "plain attention": None,
        # Their rule on standard scores: ρ = 6 on those of first weights would join nothing.
        "the paper's pairs": JatConfig.paper(heads="all", standardize=True, threshold=4.0),
        "stepping stones": JatConfig.stones(),
    }
    from jat_graph.looking.cli.partners import chance, draw_curves, learning_curve

    curves = {
        name: learning_curve(name, config, pairs, steps, seed) for name, config in variants.items()
    }
    by_chance = {size: chance(2 * size - 1) for size in range(1, pairs + 1)}
    draw_curves(curves, by_chance, output / "curves.png")
    results = {
        "lengths": lengths,
        "text": PAIR,
        "jumps": found,
        "variants": {name: c and c.to_dict() for name, c in variants.items()},
        "chance": by_chance,
        "curves": curves,
        "seconds": round(time.monotonic() - start, 1),
    }
    write_text(output / "results.json", json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    _show_learning(curves, by_chance)
    typer.echo(f"Pictures and results are in {output.resolve()} ({results['seconds']:.0f} s).")


def _read_long_texts(
    model: Any, tokenizer: Any, lengths: list[int], output: Path
) -> list[dict[str, float]]:
    """Compare a model on SDPA and on clusters over the length of a text, and draw it."""
    from pydoc_data.topics import topics  # Python's own manual, the long text that is everywhere

    from jat_graph.looking.inspection.fidelity import compare_with_sdpa
    from jat_graph.looking.viz.clusters import draw_lengths

    longest = max(lengths)
    cut = cut_at(model, tokenizer, longest, longest) | {"max_length": longest}
    ids = tokenizer("\n".join(topics.values()), **cut)["input_ids"]
    points = [
        compare_with_sdpa(model, ids[:, :length], {}, ROUNDS)
        for length in track_progress(sorted(lengths), "Reading", len(lengths))
    ]
    draw_lengths(points, output / "lengths.png")
    typer.echo(
        'Python\'s manual, read by the model with SDPA and with attn_implementation="clustered":'
    )
    table = Table("tokens", "s, SDPA", "s, clusters", "ratio", "keys read", "cosine of states")
    for point in points:
        seconds = (f"{point[name]:.2f}" for name in ("sdpa", "clusters", "ratio"))
        near = f"{point['share']:.0%}", f"{point['token_cosine']:.3f}"
        table.add_row(f"{point['tokens']}", *seconds, *near)
    Console().print(table)
    typer.echo("Short texts are read by SDPA itself, and gain nothing.")
    return points


def _look_at_pair(model: Any, tokenizer: Any, picture: Path) -> list[dict[str, Any]]:
    """Show the jumps between *computer* and *pencil*, and draw the head with the largest gain."""
    from dataclasses import replace

    from jat_graph.looking.inspection import inspect_text, view_head
    from jat_graph.looking.viz import draw_head, save_figure

    console = Console()
    report = inspect_text(model, tokenizer, PAIR, top=10_000, special_tokens=True)
    joined = [
        (head, jump)
        for head in report.heads
        for jump in head.jumps
        if {jump.query.text.lower(), jump.key.text.lower()} == WORDS
    ]
    joined.sort(key=lambda own: -own[1].gain)
    best = joined[0][0] if joined else report.heads[0]
    view = view_head(model, tokenizer, PAIR, layer=best.layer, head=best.head, special_tokens=True)
    marked = tuple(jump for head, jump in joined if head is best) or view.report.jumps
    save_figure(draw_head(replace(view, report=replace(view.report, jumps=marked))), picture)
    console.print(f"\n[bold]{PAIR}[/bold]")
    console.print(
        "Every token moves half the way to those on its stepping stones, the keys that it scores "
        f"more than {report.config.jump_graph.threshold:g} standard deviation from the mean."
    )
    if not joined:
        console.print("No head joins computer and pencil.")
        return []
    heads = {(head.layer, head.head) for head, _ in joined}
    console.print(f"{len(heads)} heads join computer and pencil, the largest gains first:")
    table = Table("layer", "head", "density", "jump", "before", "after", "stepping stones")
    for head, jump in joined[:SHOWN_JUMPS]:
        pair, _, stones = jump_cells(jump)
        numbers = f"{head.density:.1%}", pair, f"{jump.before:.1%}", f"{jump.after:.1%}"
        table.add_row(str(head.layer), str(head.head), *numbers, stones)
    console.print(table)
    return [
        {"layer": head.layer, "head": head.head, "density": head.density, **jump.to_dict()}
        for head, jump in joined
    ]


def _show_learning(curves: dict[str, list[dict[str, float]]], by_chance: dict[int, float]) -> None:
    console = Console()
    console.print(
        "\nIn a sequence every name has a value, and shares a hub with one other name, its "
        "partner. For each name one layer must give the partner's value, which takes two steps."
    )
    steps = next(iter(curves.values()))[-1]["step"]
    title = f"Right answers of one layer after {steps:g} steps"
    table = Table("pairs of names", *curves, "chance", title=title)
    for size, lucky in by_chance.items():
        right = (f"{curve[-1][f'accuracy_{size}']:.1%}" for curve in curves.values())
        table.add_row(str(size), *right, f"{lucky:.1%}")
    console.print(table)
    console.print(
        "This shows that one layer with stones can do what takes two layers of ordinary attention. "
        "It does not show that real texts need it."
    )
