"""The commands that look into a model: ``inspect``, ``calibrate`` and ``view``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from jat_graph.core.files import check_picture, check_target, write_text
from jat_graph.core.progress import track_progress
from jat_graph.looking.cli import options
from jat_graph.looking.cli.tables import calibrated_lines, cluster_tables, head_tables, ranked_table
from jat_graph.looking.directions import isolated

DEFAULT_LENGTH = 128  # tokens of a text that thresholds are measured on
MOST_JUMPS = 3  # of a head, unless told otherwise
FIRST_SENTENCES = 3  # of a treebank, unless others are named


def inspect_command(
    model: options.ModelOption,
    text: options.TextOption = None,
    file: options.FileOption = None,
    config: options.ConfigOption = None,
    changes: options.SetOption = None,
    layer: options.LayerOption = None,
    head: options.HeadOption = None,
    tokens: options.TokensOption = None,
    special_tokens: options.SpecialOption = False,
    top: options.TopOption = MOST_JUMPS,
    jump: options.JumpOption = None,
    rank: Annotated[
        bool, typer.Option("--rank", help="Rank the heads, with a line for each.")
    ] = False,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Also write everything to this file; several texts as a list."),
    ] = None,
    fidelity: Annotated[
        bool, typer.Option("--fidelity", help="Show what heads with clusters read and lose.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(help="With --fidelity, also draw a picture: .png, .svg or .pdf.")
    ] = None,
    max_length: options.LengthOption = None,
) -> None:
    """Show what each head does on texts, or would do in each layer.

    Without texts the command tells what heads will do in each layer, and why. A jump is a pair of
    tokens that the head's graph joins. Its gain is the attention probability after propagation
    minus the one before, and its stepping stones are the keys that voted for it. For stones the
    command also shows the tokens on them, their number and size, strengths, and the jumps' share of
    the walks. For heads that read by clusters (--config clustered) it shows which keys tokens find
    in the clusters that they read, with shares of their attention, and how much of it is exact.
    Small numbers after tokens are positions: pencil₅ → book₁.

    With --rank each head is one line for all texts together, and the one that changes attention
    most comes first; with --jump it is the one that gains most by this jump, with --fidelity the
    one that loses most.

    With --fidelity the heads read by clusters, and there is one table for all texts: the share of
    keys that a query reads exactly, the probability on these, total variation and error against the
    model's own attention, for each layer, or with --rank for each head. For a decoder it also shows
    the change of the loss, and the share of next tokens that change.
    """
    from jat_graph.jumps.config import JatConfig

    looks = jump or top != MOST_JUMPS
    of_texts: tuple[Any, ...] = (layer, head, tokens, special_tokens, looks, rank, json_file)
    if not any((text, file, *of_texts, fidelity, picture, max_length)):
        _show_support(model, config, changes)
        return
    check_target(json_file)
    texts = options.read_texts(text, file)
    shows_tokens = tokens is not None or special_tokens
    misfits: dict[str, Any] = {
        "--fidelity uses all tokens: leave out --tokens and --special-tokens": shows_tokens,
        "--fidelity uses all heads: leave out --layer and --head": layer or head,
        "--fidelity shows no jumps: leave out --jump and --top": looks,
    }
    if not fidelity:
        misfits = {
            "--picture needs --fidelity; jat-graph plot draws single heads": picture,
            "--max-length needs --fidelity: single heads are shown on whole texts": max_length,
        }
    for said in (said for said, given in misfits.items() if given):
        raise ValueError(said)
    if fidelity:
        _show_fidelity(model, texts, config, changes, json_file, picture, rank, max_length)
        return
    loaded, tokenizer = options.load_model(model, config, changes, JatConfig())
    from jat_graph.hf import attached_config
    from jat_graph.looking.inspection import inspect_clusters, inspect_text

    clustered = attached_config(loaded) is None  # or its heads would jump
    if clustered and jump:
        raise ValueError("--jump needs jump heads, got heads that read by clusters")
    shown: Any = {"layers": layer, "heads": head, "tokens": tokens, "top": top}
    shown |= {"special_tokens": special_tokens} | ({} if clustered else {"jump": jump})
    look: Any = inspect_clusters if clustered else inspect_text
    tables: Any = cluster_tables if clustered else head_tables
    tracked = track_progress(texts, "Reading", len(texts), transient=True)
    found = [look(loaded, tokenizer, own, **shown) for own in tracked]
    if json_file is not None:
        every = [report.to_dict() for report in found]
        told = every if len(every) > 1 else every[0]
        write_text(json_file, json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    options.note_default(loaded, config, changes)
    if rank:
        Console().print(ranked_table(found, by_jump=jump is not None))
        return
    for own, report in zip(texts, found, strict=True):
        if len(texts) > 1:
            Console().print(f"\n[bold]{escape(isolated(own))}[/bold]", soft_wrap=True)
        Console().print(*tables(report), sep="\n")


def _show_support(model: str, config: str | None, changes: list[str] | None) -> None:
    from jat_graph.jumps.config import JatConfig

    wanted = options.read_settings(config, changes, JatConfig.clustered())
    loaded, _ = options.load_model(model, foretelling=True)
    from jat_graph.hf import supports

    table = Table(Column("module", overflow="fold"), "attention", "reads", "why no heads")
    for row in supports(loaded, wanted):
        table.add_row(escape(row.name), row.attention, row.reads, row.why)
    Console().print(table)


def _show_fidelity(
    model: str,
    texts: list[str],
    config: str | None,
    changes: list[str] | None,
    json_file: Path | None,
    picture: Path | None,
    rank: bool,
    max_length: int | None,
) -> None:
    if picture is not None:
        check_picture(picture, "--picture")
    from jat_graph.jumps.config import JatConfig, check_clusters

    # Refused before weights are read; what is not given is the model's own.
    check_clusters(options.read_settings(config, changes, JatConfig.clustered()))
    loaded, tokenizer = options.load_model(model, foretelling=True)
    from jat_graph.looking.inspection import fidelity
    from jat_graph.looking.inspection.selection import encode_text
    from jat_graph.looking.inspection.tracing import cluster_config

    if max_length is None:
        batches: list[Any] = [encode_text(loaded, tokenizer, own).inputs for own in texts]
    else:
        cut = options.cut_at(loaded, tokenizer, max_length, max_length)
        batches = [tokenizer(own, **cut) for own in texts]
    wanted = options.read_settings(config, changes, cluster_config(loaded))
    report = fidelity(loaded, batches, wanted)
    if json_file is not None:
        report.save(json_file)
    if picture is not None:
        from jat_graph.looking.viz import draw_fidelity, save_figure

        save_figure(draw_fidelity(report), picture)
    if rank:
        report = replace(report, heads=report.ranked())
    Console().print(report.table(by_head=rank), highlight=False)
    below = report.config.cluster_graph.dense_below
    if report.dense == report.sequences and not isinstance(below, tuple):
        typer.echo("With --set dense_below=0 clusters also read texts of this length.")
    if picture is not None:
        typer.echo(f"The picture is in {picture}.")


def calibrate_command(
    model: options.ModelOption,
    text: options.TextOption = None,
    file: options.FileOption = None,
    config: options.ConfigOption = None,
    changes: options.SetOption = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="JSON file for the settings.")
    ] = Path("jat_config.json"),
    density: Annotated[
        float | None, typer.Option(help="Share of token pairs to join. Default: 0.05.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Largest mean error of a head with clusters, such as 0.1.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts per batch.")] = 16,
    max_length: options.LengthOption = None,
) -> None:
    """Find settings of heads that fit a model, and save them.

    By default these are thresholds that join the wanted share of pairs in each head. With
    --tolerance find the cheapest clusters of each head whose error is within the tolerance; if
    there are none, the head stays dense. The texts should be as long as those to be read, up to
    --max-length, by default 128. Every fifth batch is held out, and the result on those is shown.
    """
    from jat_graph.jumps.config import ClusterGraph, JatConfig, check_calibration

    check_target(output)
    texts = options.read_texts(text, file)
    default = JatConfig() if tolerance is None else JatConfig.clustered()
    wanted = options.read_settings(config, changes, default)
    assert wanted is not None
    check_calibration(wanted, density, tolerance)
    from jat_graph.looking.inspection import calibrate
    from jat_graph.looking.inspection.tracing import cluster_config

    if isinstance(wanted.graph, ClusterGraph):
        loaded, tokenizer = options.load_model(model)
        wanted = options.read_settings(config, changes, cluster_config(loaded))
    else:
        loaded, tokenizer = options.load_model(model, config, changes, default)
        wanted = None  # its own
    cut = options.cut_at(loaded, tokenizer, max_length, DEFAULT_LENGTH)
    starts = range(0, len(texts), batch_size)
    batches = [tokenizer(texts[start : start + batch_size], **cut) for start in starts]
    result = calibrate(loaded, batches, density=density, tolerance=tolerance, config=wanted)
    result.save(output)
    for line in calibrated_lines(result):
        typer.echo(line)
    typer.echo(f"Settings are in {output}; use them with --config {output}.")


def view_command(
    model: options.ModelOption,
    text: options.TextOption = None,
    file: options.FileOption = None,
    config: options.ConfigOption = None,
    changes: options.SetOption = None,
    layer: options.LayerOption = None,
    head: options.HeadOption = None,
    tokens: options.TokensOption = None,
    special_tokens: options.SpecialOption = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="Page to write.")] = Path(
        "page.html"
    ),
    treebank: Annotated[Path | None, typer.Option(help="Trees as CoNLL-U, plain or .gz.")] = None,
    sentences: Annotated[
        range | None,
        typer.Option(
            metavar="FIRST:END",
            parser=options.parse_span,
            help="Numbers of sentences, from 1: 5:8 for 5 to 7. Default: the first three.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title. Default: the model's name.")] = None,
) -> None:
    """Write a page that shows heads on texts, for any browser.

    For a model without jump heads the page shows attention. With --config or --set, or for a model
    that was saved with jump heads, it also shows the attention before the jump, the difference and
    the graph: a click on a pair shows the stones that joined it. For heads that read by clusters a
    click on a token shows the clusters that it reads, the nodes that stand for all other keys, and
    how much of its attention is exact. The sentences of --treebank are shown with their trees.
    """
    check_target(output)
    texts: list[Any] = [*options.read_texts(text, file, needed=treebank is None)]
    if treebank is not None:
        from jat_graph.looking.probes.treebank import read_treebank

        wanted = sentences or range(1, FIRST_SENTENCES + 1)
        found = read_treebank(treebank, most=wanted.stop - 1)
        if wanted.start < 1 or (sentences is not None and len(found) < wanted.stop - 1):
            got = f"{wanted.start}:{wanted.stop}"
            raise ValueError(f"--sentences must be of 1 to {len(found)} in {treebank}, got {got}")
        texts += found[wanted.start - 1 :]
    loaded, tokenizer = options.load_model(model, config, changes)
    from jat_graph.looking.probes import view

    shown: Any = {"layers": layer, "heads": head, "tokens": tokens}
    own = [part for part in Path(model).parts if part not in ("model", "/")]
    name = title or (own[-1] if own else model)  # of a folder, or of a repository on the Hub
    page = view(loaded, tokenizer, texts, special_tokens=special_tokens, title=name, **shown)
    page.save(output)
    size = output.stat().st_size / 1e6
    typer.echo(f"The page is in {output} ({size:.1f} MB); open it in a browser.")
