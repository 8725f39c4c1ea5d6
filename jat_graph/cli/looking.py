"""The commands that show jump heads: ``demo``, ``inspect``, ``calibrate`` and ``plot``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from jat_graph.checks.layers import is_layer, read_layer
from jat_graph.checks.numbers import check_integer
from jat_graph.checks.pictures import check_most_tokens, check_pattern_tokens
from jat_graph.cli.beforehand import check_heads, check_look
from jat_graph.cli.head_tables import head_tables, threshold_table
from jat_graph.cli.inputs import (
    LookOptions,
    ModelOption,
    TextOptions,
    check_batches,
    default_model,
    load_model,
    text_batches,
)
from jat_graph.cli.options import JatOptions, gather
from jat_graph.directions import isolated
from jat_graph.files import check_data_folder, check_picture, check_target, write_text
from jat_graph.progress import has_terminal, watched
from jat_graph.tasks import PartnersTask, get_task
from jat_graph.training import TrainingOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TopOption = Annotated[int, typer.Option(min=0, help="Jumps shown for each head.")]


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
    model = model or default_model()
    check_heads(model, ())
    check_integer("steps", steps, least=1)
    PartnersTask(pairs=pairs)
    from jat_graph.cli.demo import demonstrate, show

    found = demonstrate(
        model,
        output,
        pairs=pairs,
        steps=steps,
        seed=seed,
        progress=has_terminal(),
    )
    show(found)
    Console().print(f"Pictures and results are in {output.resolve()} ({found.seconds:.0f} s).")


@gather(given=TextOptions, look=LookOptions, jat=JatOptions)
def inspect_command(
    model: ModelOption,
    given: TextOptions,
    look: LookOptions,
    jat: JatOptions,
    top: TopOption = 3,
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
    are positions: pencil₆ → book₁. --layer, --head and --tokens show less of the same, whatever
    else jumps.
    """
    from jat_graph.config import JatConfig

    check_target(json_file)
    texts, chosen = given.read("inspect"), look.resolve()
    check_heads(model, (jat.resolve(JatConfig()),))
    check_look(model, chosen)
    from jat_graph.inspection.reading import Reading
    from jat_graph.inspection.text import inspection_of, reports_of

    loaded, tokenizer = load_model(model, jat, JatConfig(), look)
    found = []
    for reading in [Reading.of(loaded, tokenizer, text, **chosen) for text in texts]:
        reports, number = reports_of(reading, top), len(reading.heads)
        report = inspection_of(reading, watched(reports, "heads", number, transient=True))
        if len(texts) > 1:
            Console().print(f"\n[bold]{escape(isolated(reading.text))}[/bold]", soft_wrap=True)
        Console().print(*head_tables(report), sep="\n")
        if json_file is not None:
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
    from jat_graph.config import JatConfig, check_calibration

    if task is not None and (given.text is not None or given.sentence):
        raise ValueError("calibrate takes --task or texts, not both")
    check_target(output)
    settings = jat.resolve(JatConfig()) or JatConfig()
    check_calibration(density, settings)
    texts = [] if task is not None else given.read("calibrate", "--task")
    check_batches(batch_size, max_length)
    check_heads(model, (settings,))
    check_data_folder(data_dir)
    if task is None:
        from jat_graph.inspection.calibration import calibrate

        loaded, tokenizer = load_model(model, jat, JatConfig())
        batched = text_batches(texts, tokenizer, batch_size, max_length)
        result = calibrate(loaded, batched, density=density)
    else:
        get_task(task)
        from jat_graph.training import calibrate_on_task

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
    Console().print(threshold_table(result))
    Console().print(f"Settings are in {output}; use them with --config {output}.")


@gather(given=TextOptions, look=LookOptions, jat=JatOptions)
def plot_command(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Picture to write: .png, .svg or .pdf.")
    ],
    given: TextOptions,
    look: LookOptions,
    jat: JatOptions,
    model: Annotated[str | None, typer.Option(help="Folder or Hub name of a model.")] = None,
    top: TopOption = 5,
    length: Annotated[
        int, typer.Option(help="Most tokens drawn of one head; the tokens of a pattern.")
    ] = 48,
) -> None:
    """Draw jump heads on a text: one with its jumps, or the graphs of all; or a pattern alone.

    One head, named by --layer and --head, is drawn as its scores, its graph or its stones, and its
    propagated scores; of a long text the tokens of the strongest jumps. Several heads are drawn as
    a grid of their graphs. Without a model, patterns are drawn: several, separated by commas,
    beside each other; memory-compressed:KERNEL:STRIDE, area:WIDTH, both perhaps with :causal, and
    block:LENGTH are layers that read something else than single tokens.
    """
    check_picture(output, "--output")
    if model is None and jat.pattern is None:
        raise ValueError("plot needs --model, or --pattern")
    if model is not None:
        figure = _heads_figure(model, given, look, jat, top, length)
    else:
        figure = _patterns_figure(str(jat.pattern), length)
    from jat_graph.viz import save_figure

    save_figure(figure, output)
    Console().print(f"The picture is in {output}.")


def _heads_figure(
    model: str, given: TextOptions, look: LookOptions, jat: JatOptions, top: int, most_tokens: int
) -> Figure:
    """One head, or the graphs of several."""
    from jat_graph.config import JatConfig

    check_most_tokens("--length", most_tokens)
    texts, chosen = given.read("plot"), look.resolve()
    if len(texts) > 1:
        raise ValueError(f"plot draws one text, got {len(texts)}: choose one with --sentence")
    check_heads(model, (jat.resolve(JatConfig()),))
    check_look(model, chosen)
    from jat_graph.inspection.reading import Reading
    from jat_graph.inspection.text import graphs_of, view_of
    from jat_graph.viz import draw_graphs, draw_head

    loaded, tokenizer = load_model(model, jat, JatConfig(), look)
    reading = Reading.of(loaded, tokenizer, texts[0], **chosen)
    if len(reading.heads) == 1:
        return draw_head(view_of(reading, top), most_tokens)
    return draw_graphs(watched(graphs_of(reading), "heads", len(reading.heads), transient=True))


def _patterns_figure(specs: str, length: int) -> Figure:
    """Attention patterns, and layers that read something else than single tokens."""
    from jat_graph.patterns import parse_pattern

    check_pattern_tokens("--length", length)
    chosen = specs.split(",")
    for spec in chosen:
        read_layer(spec) if is_layer(spec) else parse_pattern(spec)
    from jat_graph.viz import draw_patterns
    from jat_graph.viz.layers import parse_layer

    patterns = [parse_layer(spec) if is_layer(spec) else parse_pattern(spec) for spec in chosen]
    return draw_patterns(patterns, length)
