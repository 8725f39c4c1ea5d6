"""The command ``demo``: long texts on clusters, and the jumps in one sentence pair."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from jat_graph.core.files import write_text
from jat_graph.core.progress import track_progress
from jat_graph.looking.cli.options import MINILM, ModelOption, cut_at, load_model
from jat_graph.looking.cli.tables import ranked_table

PAIR = "Book costs more than pencil. Book costs less than computer."
WORDS = ("pencil", "computer")
SHOWN_HEADS = 8
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
) -> None:
    """Show a pretrained model on long texts, and its jumps.

    The demo measures time and fidelity of a pretrained model over the length of a text, and shows
    the jumps in the JAT paper's sentence pair.
    """
    start = time.monotonic()
    output.mkdir(parents=True, exist_ok=True)
    lengths = _read_long_texts(*load_model(model), length or LENGTHS, output)
    # One threshold for all heads, and half of the way: nothing is calibrated and nothing learnt.
    loaded, tokenizer = load_model(model, "stones", ["strength=0.5", "heads=all"])
    found = _look_at_pair(loaded, tokenizer, output / "head.png")
    results = {"lengths": lengths, "pair": found, "seconds": round(time.monotonic() - start, 1)}
    write_text(output / "results.json", json.dumps(results, indent=2, ensure_ascii=False) + "\n")
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


def _look_at_pair(model: Any, tokenizer: Any, picture: Path) -> dict[str, Any]:
    """Show the jumps from *pencil* to *computer*, and draw the head where it gains most."""
    from jat_graph.looking.inspection import inspect_text, view_head
    from jat_graph.looking.viz import draw_head, save_figure

    report = inspect_text(model, tokenizer, PAIR, top=1, jump=WORDS)
    heads = report.ranked(by_jump=True)
    place: Any = {"layer": heads[0].layer, "head": heads[0].head}
    save_figure(draw_head(view_head(model, tokenizer, PAIR, **place, jump=WORDS)), picture)
    Console().print(
        f"\n[bold]{PAIR}[/bold]\n"
        "Every token moves half the way to those on its stepping stones, the keys that it scores "
        f"more than {report.config.jump_graph.threshold:g} standard deviation from the mean.\n"
        f"{picture.name} draws the first of the heads where computer gains most from pencil:"
    )
    Console().print(ranked_table([replace(report, heads=heads[:SHOWN_HEADS])], by_jump=True))
    return report.to_dict()
