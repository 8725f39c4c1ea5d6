"""The commands that show jump heads: ``demo``, ``inspect``, ``calibrate`` and ``plot``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jat_graph.cli.inputs import (
    ModelOption,
    default_model,
    has_terminal,
    load_model,
    read_text,
    text_batches,
)
from jat_graph.cli.options import JatOptions, gather
from jat_graph.files import check_target, write_text
from jat_graph.training import TrainingOptions

if TYPE_CHECKING:
    from jat_graph.config import JatConfig
    from jat_graph.inspection.reports import (
        HeadReport,
        Inspection,
        Jump,
        SteppingStone,
        Stone,
        StoneReport,
    )

_SIGNS = {1: "+", -1: "−"}  # of stones of unusually high and unusually low scores
MANY = 2**31  # more heads than any model: the config's own heads are wanted, whatever the model

TextOption = Annotated[Path | None, typer.Option("--text", help="File with one text, in UTF-8.")]
SpecialOption = Annotated[bool, typer.Option("--special-tokens", help="Show special tokens, too.")]
TopOption = Annotated[int, typer.Option(help="Jumps shown for each head.")]


def demo_command(
    output: Annotated[Path, typer.Option(help="Folder for picture and results.")] = Path(
        "jat_graph_demo"
    ),
    model: Annotated[
        str | None, typer.Option(help="Folder or Hub name. Default: all-MiniLM-L6-v2.")
    ] = None,
    pairs: Annotated[int, typer.Option(help="Most pairs of names in a sequence.")] = 5,
    steps: Annotated[int, typer.Option(help="Training steps of each layer.")] = 1500,
    seed: Annotated[int, typer.Option(help="Seed of first weights and training data.")] = 0,
) -> None:
    """Look at the paper's sentence pair, then see what one layer learns with and without jumps."""
    from jat_graph.cli.demo import demonstrate, show

    found = demonstrate(
        model or default_model(),
        output,
        pairs=pairs,
        steps=steps,
        seed=seed,
        progress=has_terminal(),
    )
    show(found)
    Console().print(f"Pictures and results are in {output.resolve()} ({found.seconds:.0f} s).")


@gather(jat=JatOptions)
def inspect_command(
    model: ModelOption,
    text: Annotated[Path, typer.Option("--text", help="File with one text, in UTF-8.")],
    jat: JatOptions,
    top: TopOption = 3,
    special_tokens: SpecialOption = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write everything to this file.")
    ] = None,
) -> None:
    """Show what each jump head does on a text: density, mean weight, jumps, stepping stones.

    A jump is a pair of tokens that the head's graph joins; its gain is the attention probability
    after propagation minus the one before; its stepping stones are the keys that voted for it.
    With stones: the share of tokens on stones, stones in use and their median size, strengths,
    jumps with their share of the walks, and who stands on which stone.
    """
    from jat_graph.config import JatConfig
    from jat_graph.inspection.text import inspect_text

    check_target(json_file)
    content = read_text(text)
    loaded, tokenizer = load_model(model, jat, JatConfig())
    report = inspect_text(loaded, tokenizer, content, top=top, special_tokens=special_tokens)
    Console().print(*_tables(report), sep="\n")
    if json_file is not None:
        write_text(json_file, json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n")


@gather(jat=JatOptions)
def calibrate_command(
    model: ModelOption,
    jat: JatOptions,
    output: Annotated[Path, typer.Option(help="JSON file for the settings.")] = Path(
        "jat_config.json"
    ),
    text: Annotated[
        Path | None, typer.Option("--text", help="File with one text a line, in UTF-8.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Measure on this task's training texts instead.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with the task's original files.")
    ] = None,
    density: Annotated[float, typer.Option(help="Share of token pairs to join.")] = 0.05,
    batch_size: Annotated[int, typer.Option(help="Texts per batch.")] = 16,
    batches: Annotated[int, typer.Option(help="Batches of a task's texts.")] = 10,
    max_length: Annotated[int, typer.Option(help="Tokens kept of each text or pair.")] = 128,
) -> None:
    """Find the threshold of each head that joins the wanted share of pairs, and save the settings.

    Every fifth batch is held out, and the density reached on those is shown.
    """
    from jat_graph.config import JatConfig
    from jat_graph.inspection.calibration import calibrate, check_calibration
    from jat_graph.training import calibrate_on_task

    if (text is None) == (task is None):
        raise ValueError("calibrate needs either --text or --task")
    check_target(output)
    check_calibration(density, jat.resolve(JatConfig()) or JatConfig())
    if text is not None:
        texts = [line.strip() for line in read_text(text).splitlines() if line.strip()]
        loaded, tokenizer = load_model(model, jat, JatConfig())
        batched = text_batches(texts, tokenizer, batch_size, max_length)
        result = calibrate(loaded, batched, density=density)
    else:
        options = TrainingOptions(
            model=model,
            task=str(task),
            output_dir=".",
            data_dir=None if data_dir is None else str(data_dir),
            batch_size=batch_size,
            max_length=max_length,
        )
        result = calibrate_on_task(options, jat.resolve(), density, batches=batches)
    result.save(output)
    Console().print(_threshold_table(result))
    Console().print(f"Settings are in {output}; use them with --config {output}.")


@gather(jat=JatOptions)
def plot_command(
    output: Annotated[Path, typer.Option("--output", "-o", help="Picture to write, a .png.")],
    jat: JatOptions,
    model: Annotated[str | None, typer.Option(help="Folder or Hub name of a model.")] = None,
    layer: Annotated[int | None, typer.Option(help="Layer, from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="Head, from 0.")] = None,
    text: TextOption = None,
    sentence: Annotated[str | None, typer.Option(help="The text itself.")] = None,
    top: TopOption = 5,
    special_tokens: SpecialOption = False,
    length: Annotated[int, typer.Option(help="Tokens of a pattern drawn alone.")] = 48,
) -> None:
    """Draw one head on a text, its jumps marked; or without a model, the attention pattern.

    A head is drawn as its scores, its graph or its stones, and its propagated scores. Several
    patterns, separated by commas, are drawn beside each other; memory-compressed:KERNEL:STRIDE,
    area:WIDTH, both perhaps with :causal, and block:LENGTH are layers that read something else
    than single tokens.
    """
    from jat_graph.config import JatConfig
    from jat_graph.inspection.text import view_head
    from jat_graph.patterns import parse_pattern
    from jat_graph.viz import draw_head, draw_patterns, save_figure
    from jat_graph.viz.heads import check_picture
    from jat_graph.viz.layers import is_layer, parse_layer

    check_picture(output)
    if model is None and jat.pattern is not None:
        specs = jat.pattern.split(",")
        patterns = [parse_layer(s) if is_layer(s) else parse_pattern(s) for s in specs]
        save_figure(draw_patterns(patterns, length), output)
    else:
        if model is None or layer is None or head is None:
            raise ValueError("plot needs --model, --layer and --head, or --pattern")
        if (text is None) == (sentence is None):
            raise ValueError("plot needs either --text or --sentence")
        content = read_text(text) if text is not None else str(sentence)
        loaded, tokenizer = load_model(model, jat, JatConfig(), (layer, head))
        view = view_head(
            loaded,
            tokenizer,
            content,
            layer=layer,
            head=head,
            top=top,
            special_tokens=special_tokens,
        )
        save_figure(draw_head(view), output)
    Console().print(f"The picture is in {output}.")


def _tables(report: Inspection) -> list[Table]:
    """What was found, in one table; with stones in one for heads, for jumps and for stones each."""
    from jat_graph.inspection.reports import StoneReport

    place, theta = ("layer", "head"), ["θ"] * (report.config.strength is not None)
    heads = [head for head in report.heads if isinstance(head, StoneReport)]
    if heads:
        numbers = [(_stone_head_cells(head), [()]) for head in heads]
        jumps = [
            (_place(head), [_jump_cells(j, f"{j.weight:.0%}") for j in head.jumps])
            for head in heads
        ]
        stones = [(_place(head), map(_stone_cells, head.stones)) for head in heads]
        return [
            _table((*place, "t", "linked", "stones", "size", *theta), numbers),
            _table((*place, "jump", "P", "gain", "stepping stones"), jumps),
            _table((*place, "stone", "walks", "who stands on it"), stones),
        ]
    columns = *place, "ρ", "density", "mean weight", *theta, "jump", "gain", "stepping stones"
    return [_table(columns, [(_head_cells(h), map(_jump_cells, h.jumps)) for h in report.heads])]


def _table(
    columns: tuple[str, ...],
    heads: Sequence[tuple[tuple[str, ...], Iterable[tuple[str, ...]]]],
) -> Table:
    """Show the rows of each head, whose own cells stand in its first."""
    table = Table(*columns)
    for own, found in heads:
        rows = list(found) or [("none",)]
        for place, cells in enumerate(rows):
            first = own if place == 0 else ("",) * len(own)
            table.add_row(*first, *cells, end_section=place == len(rows) - 1)
    return table


def _place(head: HeadReport) -> tuple[str, ...]:
    return str(head.layer), str(head.head)


def _head_cells(head: HeadReport) -> tuple[str, ...]:
    numbers = f"{head.threshold:.3g}", f"{head.density:.1%}", f"{head.mean_weight:.2f}"
    return *_place(head), *numbers, *_strengths(head)


def _stone_head_cells(head: StoneReport) -> tuple[str, ...]:
    numbers = f"{head.linked:.0%}", str(head.num_stones), f"{head.median_size:g}"
    return *_place(head), f"{head.threshold:.3g}", *numbers, *_strengths(head)


def _strengths(head: HeadReport) -> list[str]:
    """θ of queries, keys and values, hop by hop; nothing without."""
    hops = head.strengths or ()
    return ["; ".join(" ".join(f"{x:+.2g}" for x in hop) for hop in hops)] * bool(hops)


def _jump_cells(jump: Jump, *weight: str) -> tuple[str, ...]:
    stones = [_stone_name(stone) for stone in jump.stones[:3]]
    left, hidden = len(jump.stones) - len(stones), jump.hidden_stones
    more = [f"{left} more"] * bool(left) + [f"{hidden} special"] * bool(hidden)
    pair = f"{jump.query.text} → {jump.key.text}"
    return escape(pair), *weight, f"{jump.gain:+.1%}", escape(", ".join(stones + more))


def _stone_name(stone: SteppingStone) -> str:
    """A stepping stone with its scores, or its side and its share."""
    if stone.side is None:
        return f"{stone.token.text} ({stone.query_score:+.1f}, {stone.key_score:+.1f})"
    return f"{stone.token.text} {_SIGNS[stone.side]} {stone.share:.0%}"


def _stone_cells(stone: Stone) -> tuple[str, ...]:
    links = [f"{link.token.text} {link.weight:.2f}" for link in stone.links]
    hidden = [f"{stone.hidden_links} special"] * bool(stone.hidden_links)
    name = f"{stone.token.text} {_SIGNS[stone.side]}"
    return escape(name), f"{stone.share:.1%}", escape(", ".join(links + hidden))


def _threshold_table(config: JatConfig) -> Table:
    """Show the thresholds: a row for each jump layer, a column for each jump head."""
    rows = config.threshold if isinstance(config.threshold, tuple) else ()
    layers = config.layers or range(len(rows))
    heads = config.head_indices(MANY) if rows else ()
    table = Table("ρ of layer", *(f"head {head}" for head in heads))
    for layer, row in zip(layers, rows, strict=True):
        table.add_row(str(layer), *(f"{value:.3g}" for value in row))
    return table
