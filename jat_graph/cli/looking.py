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
    TextOptions,
    default_model,
    has_terminal,
    load_model,
    text_batches,
)
from jat_graph.cli.options import JatOptions, gather
from jat_graph.directions import isolated
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
        Token,
    )

_SIGNS = {1: "+", -1: "−"}  # of stones of unusually high and unusually low scores
_BELOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
MANY = 2**31  # more heads than any model: the config's own heads are wanted, whatever the model

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


@gather(given=TextOptions, jat=JatOptions)
def inspect_command(
    model: ModelOption,
    given: TextOptions,
    jat: JatOptions,
    top: TopOption = 3,
    special_tokens: SpecialOption = False,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Also write everything to this file; several texts as a list."),
    ] = None,
) -> None:
    """Show what each jump head does on texts: density, mean weight, jumps, stepping stones.

    A jump is a pair of tokens that the head's graph joins; its gain is the attention probability
    after propagation minus the one before; its stepping stones are the keys that voted for it.
    With stones: the share of tokens on stones, stones in use and their median size, strengths,
    jumps with their share of the walks, and who stands on which stone. Small numbers after tokens
    are positions: pencil₆ → book₁.
    """
    from jat_graph.config import JatConfig
    from jat_graph.inspection.text import inspect_text

    check_target(json_file)
    texts = given.read("inspect")
    loaded, tokenizer = load_model(model, jat, JatConfig())
    found = []
    for text in texts:
        report = inspect_text(loaded, tokenizer, text, top=top, special_tokens=special_tokens)
        if len(texts) > 1:
            Console().print(f"\n[bold]{escape(isolated(text))}[/bold]", soft_wrap=True)
        Console().print(*_tables(report), sep="\n")
        found.append(report.to_dict())
    if json_file is not None:
        content = found if len(found) > 1 else found[0]
        write_text(json_file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


@gather(given=TextOptions, jat=JatOptions)
def calibrate_command(
    model: ModelOption,
    given: TextOptions,
    jat: JatOptions,
    output: Annotated[Path, typer.Option(help="JSON file for the settings.")] = Path(
        "jat_config.json"
    ),
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

    if task is not None and (given.text is not None or given.sentence):
        raise ValueError("calibrate takes --task or texts, not both")
    check_target(output)
    check_calibration(density, jat.resolve(JatConfig()) or JatConfig())
    if task is None:
        texts = given.read("calibrate", "--task")
        loaded, tokenizer = load_model(model, jat, JatConfig())
        batched = text_batches(texts, tokenizer, batch_size, max_length)
        result = calibrate(loaded, batched, density=density)
    else:
        options = TrainingOptions(
            model=model,
            task=task,
            output_dir=".",
            data_dir=None if data_dir is None else str(data_dir),
            batch_size=batch_size,
            max_length=max_length,
        )
        result = calibrate_on_task(options, jat.resolve(), density, batches=batches)
    result.save(output)
    Console().print(_threshold_table(result))
    Console().print(f"Settings are in {output}; use them with --config {output}.")


@gather(given=TextOptions, jat=JatOptions)
def plot_command(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Picture to write: .png, .svg or .pdf.")
    ],
    given: TextOptions,
    jat: JatOptions,
    model: Annotated[str | None, typer.Option(help="Folder or Hub name of a model.")] = None,
    layer: Annotated[int | None, typer.Option(help="Layer, from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="Head, from 0.")] = None,
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

    check_picture(output, "--output")
    if model is None and jat.pattern is not None:
        specs = jat.pattern.split(",")
        patterns = [parse_layer(s) if is_layer(s) else parse_pattern(s) for s in specs]
        save_figure(draw_patterns(patterns, length), output)
    else:
        if model is None or layer is None or head is None:
            raise ValueError("plot needs --model, --layer and --head, or --pattern")
        texts = given.read("plot")
        if len(texts) > 1:
            raise ValueError(f"plot draws one text, got {len(texts)}: choose one with --sentence")
        loaded, tokenizer = load_model(model, jat, JatConfig(), (layer, head))
        view = view_head(
            loaded,
            tokenizer,
            texts[0],
            layer=layer,
            head=head,
            top=top,
            special_tokens=special_tokens,
        )
        save_figure(draw_head(view), output)
    Console().print(f"The picture is in {output}.")


def _tables(report: Inspection) -> list[Table]:
    """What was found: a table for heads, one for jumps and, where there are some, one for stones.

    Each is narrow enough for 80 columns.
    """
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
    columns = *place, "ρ", "density", "mean weight", *theta
    return [
        _table(columns, [(_head_cells(head), [()]) for head in report.heads]),
        _table(
            (*place, "jump", "gain", "stepping stones"),
            [(_place(head), map(_jump_cells, head.jumps)) for head in report.heads],
        ),
    ]


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
    pair = f"{_token(jump.query)} → {_token(jump.key)}"
    return escape(pair), *weight, f"{jump.gain:+.1%}", escape(", ".join(stones + more))


def _stone_name(stone: SteppingStone) -> str:
    """A stepping stone with its scores, or its side and its share."""
    if stone.side is None:
        return f"{_token(stone.token)} ({stone.query_score:+.1f}, {stone.key_score:+.1f})"
    return f"{_token(stone.token)} {_SIGNS[stone.side]} {stone.share:.0%}"


def _token(token: Token) -> str:
    """A token with its position, as pencil₆."""
    return isolated(token.text) + str(token.index).translate(_BELOW)


def _stone_cells(stone: Stone) -> tuple[str, ...]:
    links = [f"{_token(link.token)} {link.weight:.2f}" for link in stone.links]
    hidden = [f"{stone.hidden_links} special"] * bool(stone.hidden_links)
    name = f"{_token(stone.token)} {_SIGNS[stone.side]}"
    return escape(name), f"{stone.share:.1%}", escape(", ".join(links + hidden))


def _threshold_table(config: JatConfig) -> Table:
    """Show the thresholds, a line for each head."""
    rows = config.threshold if isinstance(config.threshold, tuple) else ()
    layers = config.layers or range(len(rows))
    count = len(rows[0]) if rows and config.heads == "all" else MANY
    heads = config.head_indices(count) if rows else ()
    table = Table("layer", "head", "ρ")
    for layer, row in zip(layers, rows, strict=True):
        for head, value in zip(heads, row, strict=True):
            table.add_row(str(layer), str(head), f"{value:.3g}", end_section=head == heads[-1])
    return table
