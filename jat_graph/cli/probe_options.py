"""What the commands of ``probe`` share: what they read, what it will take, and what they write."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console

from jat_graph.cli.inputs import ModelOption, load_model
from jat_graph.cli.option_texts import numbers
from jat_graph.cli.options import JatOptions

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from jat_graph.probes import Findings, Sentence

    Probe: TypeAlias = Callable[[int, Path], Findings]  # of so many sentences, rows in a folder

ROWS_FOLDER = "rows"

TreebankOption = Annotated[
    Path,
    typer.Option(
        "--treebank",
        help="Folder with a treebank's files *-ud-train.conllu, dev and test, plain or .gz.",
    ),
]
LayersOption = Annotated[
    str | None,
    typer.Option("--layer", help="Layers to ask: 0,6 are the embeddings and the sixth. All."),
]
SeedsOption = Annotated[int, typer.Option(min=1, help="How often what is drawn is drawn anew.")]


@dataclass(frozen=True)
class ProbeOptions:
    """The model, how much it reads, and where what was found goes."""

    model: ModelOption
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for tables, pictures and what was read. Default: probe-NAME."),
    ] = None
    sentences: Annotated[
        int | None, typer.Option(min=2, help="Most sentences to read of each file.")
    ] = None
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences read at a time.")] = 32
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how long it will take.")] = (
        False
    )

    def load(self, jat: JatOptions) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """The model as it is, or with the jump heads that were asked for."""
        return load_model(self.model, jat)


def layers_of(text: str | None) -> tuple[int, ...] | None:
    """Layers of states, 0 for the embeddings."""
    return None if text is None else numbers("layer", text, int)


def read_split(folder: Path, split: str, most: int | None) -> list[Sentence]:
    """The sentences of one part of a treebank."""
    from jat_graph.probes import read_treebank

    found = sorted(path for end in ("", ".gz") for path in folder.glob(f"*-{split}.conllu{end}"))
    if len(found) != 1:
        raise ValueError(
            f"--treebank must be a folder with one file *-{split}.conllu or .gz, "
            f"got {len(found)} in {folder}"
        )
    return read_treebank(found[0], most=most)


def report(name: str, probe: Probe, whole: int, options: ProbeOptions) -> None:
    """Say how long a probe will take, run it, and show and write what it found."""
    from jat_graph.lab.tables import terminal_table
    from jat_graph.training.estimate import describe_time

    seconds = _foresee(probe, whole)
    told = f"{whole} sentences: about {describe_time(seconds)}, by a run on a few."
    Console(stderr=True).print(told, soft_wrap=True)
    if options.dry_run:
        return
    folder = options.output or Path(f"probe-{name}")
    found = probe(whole, folder / ROWS_FOLDER)
    files = found.save(folder)
    console = Console()
    words = [column for column in found.table if found.table[column].dtype == object]
    console.print(terminal_table(found.cells(), words))
    console.print(found.caption, soft_wrap=True)
    console.print(f"{', '.join(path.name for path in files)} are in {folder}.", soft_wrap=True)


def _foresee(probe: Probe, whole: int) -> float:
    from jat_graph.probes.estimate import foresee
    from jat_graph.progress import silent

    messages = logging.getLogger("jat_graph")
    level = messages.level
    messages.setLevel(logging.ERROR)
    try:
        with silent(), tempfile.TemporaryDirectory() as folder:
            places = (Path(folder) / str(number) for number in range(3))
            return foresee(lambda count: probe(count, next(places)), whole)
    finally:
        messages.setLevel(level)
