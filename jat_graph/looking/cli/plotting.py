"""The command ``plot``: one head, or patterns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from jat_graph.core.files import check_picture
from jat_graph.core.numbers import PATTERN_TOKENS, PICTURE_TOKENS, check_integer
from jat_graph.looking.cli import options

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def plot_command(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Picture to write: .png, .svg or .pdf.")
    ],
    model: Annotated[str | None, typer.Option(help="Folder or Hub name.")] = None,
    text: options.TextOption = None,
    file: options.FileOption = None,
    config: options.ConfigOption = None,
    changes: options.SetOption = None,
    layer: options.LayerOption = None,
    head: options.HeadOption = None,
    tokens: options.TokensOption = None,
    special_tokens: options.SpecialOption = False,
    top: options.TopOption = 5,
    jump: options.JumpOption = None,
    length: Annotated[int, typer.Option(help="Tokens of a pattern, or of a head at most.")] = 48,
    pattern: Annotated[
        str | None, typer.Option(help="Patterns to draw instead, with commas: window:6,local:8.")
    ] = None,
) -> None:
    """Draw one head, or patterns.

    The head is drawn as its scores, its graph or its stones, and the attention that pairs gain; a
    long text is reduced to the tokens of the strongest jumps. It is the one that --layer and --head
    name, or of several the one that changes attention most. --jump pencil computer marks this jump
    alone, in the head where it gains most. Of a head that reads by clusters (--config
    clustered) the way of one token down the tree of keys is drawn, of the last one unless --tokens
    names another. The caption is printed.
    """
    check_picture(output, "--output")
    if (model is None) == (pattern is None):
        raise ValueError("plot needs --model or --pattern, and takes one of them")
    texts = [] if model is None else options.read_texts(text, file)
    if len(texts) > 1:
        raise ValueError(f"plot draws one text, got {len(texts)}: choose one with --text")
    most = PATTERN_TOKENS if model is None else PICTURE_TOKENS
    check_integer("--length", length, least=1, below=most + 1)
    from jat_graph.jumps.config import JatConfig
    from jat_graph.looking.viz import draw_patterns, save_figure

    if model is None:
        figure = draw_patterns(str(pattern).split(","), length)
    else:
        loaded = options.load_model(model, config, changes, JatConfig())
        shown: Any = {"text": texts[0], "tokens": tokens, "special_tokens": special_tokens}
        figure = _draw_heads(*loaded, shown, layer, head, jump, top, length)
        options.note_default(loaded[0], config, changes)
    save_figure(figure, output)
    if caption := str(figure.get_label()):
        Console().print(escape(caption), highlight=False, soft_wrap=True)
    typer.echo(f"The picture is in {output}.")


def _draw_heads(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    shown: Any,
    layers: list[int] | None,
    heads: list[int] | None,
    jump: tuple[str, str] | None,
    top: int,
    length: int,
) -> Figure:
    """Draw the head that is named, or of several the one to look at first."""
    from jat_graph.hf import attached_config
    from jat_graph.looking.inspection import inspect_text, view_descent, view_head
    from jat_graph.looking.viz import draw_descent, draw_head

    one: Any = {}
    if layers and heads and len(layers) == len(heads) == 1:
        one = {"layer": layers[0], "head": heads[0]}
    if attached_config(model) is None:  # but heads that read by clusters
        if not one or jump:
            raise ValueError("plot needs one --layer and one --head that read by clusters")
        figure = draw_descent(*view_descent(model, tokenizer, **one, **shown))
        figure.set_label(f"Layer {one['layer']}, head {one['head']}: {figure.get_label()}")
        return figure
    if jump is not None or not one:
        report = inspect_text(
            model, tokenizer, **shown, layers=layers, heads=heads, top=1, jump=jump
        )
        best = report.ranked(by_jump=jump is not None)[0]
        if jump is not None and not best.jumps:
            raise ValueError(f"--jump must be joined by a head, got {jump[0]!r} and {jump[1]!r}")
        one = {"layer": best.layer, "head": best.head}
    return draw_head(view_head(model, tokenizer, **one, **shown, top=top, jump=jump), length)
