"""The command ``probe``: what a model knows of syntax and trees."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jat_graph.looking.cli import options

if TYPE_CHECKING:
    from jat_graph.looking.probes import Findings

MOST_TREES = 4000  # to train on; all 12,544 of a large treebank take three times as long
# The function of each command, the files of the treebank that it is given, and what it asks.
KINDS = {
    "attention": ("attention_probe", "train test", "Does attention tell how words are related?"),
    "heads": ("best_heads", "dev", "Which head knows each relation best, beside a fixed offset?"),
    "graphs": ("graphs_and_trees", "dev", "Do jump heads join related words, beside chance?"),
    "tree": ("structural_probe", "train dev test", "Does a linear map of states give the tree?"),
}

probe_app = typer.Typer(
    help="Test what a model knows about syntax and trees.", rich_markup_mode=None
)


def probe_command(
    context: typer.Context,
    model: options.ModelOption,
    treebank: Annotated[
        Path,
        typer.Option(help="Folder with a treebank's files *-train.conllu, dev and test, or .gz."),
    ],
    config: options.ConfigOption = None,
    changes: options.SetOption = None,
    sentences: Annotated[
        int | None,
        typer.Option(min=2, help="Largest number of sentences from each file, drawn evenly."),
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="An argument of the probe, such as layers=[3,6] or seeds=[0,1,2]; repeatable.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder for the results. Default: probe-KIND."),
    ] = None,
) -> None:
    """Ask a probe, and write what it found as Markdown, JSON and pictures."""
    from jat_graph.looking import probes

    kind = str(context.info_name)
    function, splits, _ = KINDS[kind]
    probe = getattr(probes, function)
    asked = options.read_values("--option", arguments)
    parameters = inspect.signature(probe).parameters.values()
    names = {own.name for own in parameters if own.kind is own.KEYWORD_ONLY}
    if asked.keys() - names:
        wanted = f"NAME=VALUE of {', '.join(sorted(names))}"
        raise ValueError(f"--option must be {wanted}, got {arguments}")
    drawn = []
    for split in splits.split():
        trees = probes.read_treebank(treebank, split=split)
        most = MOST_TREES if (kind, split) == ("tree", "train") else len(trees)
        count = min(sentences or most, len(trees))
        # Genres of a treebank are in order.
        drawn.append([trees[index * len(trees) // count] for index in range(count)])
    folder = output or Path(f"probe-{kind}")
    loaded, tokenizer = options.load_model(model, config, changes)
    found = probe(probes.WordReader(loaded, tokenizer, folder / "rows"), *drawn, **asked)
    every: Sequence[Findings] = found if isinstance(found, tuple) else (found,)
    files = [path.name for one in every for path in one.save(folder)]
    for one in every:
        typer.echo(one.to_markdown())
    typer.echo(f"{', '.join(files)} are in {folder}.")


for _kind, (_, _, _asks) in KINDS.items():
    probe_app.command(_kind, help=_asks)(probe_command)
