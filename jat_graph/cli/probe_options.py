"""What the commands of ``probe`` share: what they read, what it will take, and what they write."""

from __future__ import annotations

import itertools
import logging
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

import typer
from rich.console import Console

from jat_graph.cli.beforehand import check_heads, check_states
from jat_graph.cli.inputs import ModelOption, load_model
from jat_graph.cli.option_texts import numbers
from jat_graph.cli.options import JatOptions

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from jat_graph.probes import Findings, Sentence

ROWS_FOLDER = "rows"
WIDE = 1000  # columns, in which any table has room

Item = TypeVar("Item")

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
BatchOption = Annotated[int, typer.Option(min=1, help="Sentences read at a time.")]
LeastOption = Annotated[
    int, typer.Option(min=1, help="Relations that are there less often are left out.")
]
RankOption = Annotated[int | None, typer.Option(min=1, help="Dimensions that a probe maps to.")]
ControlsOption = Annotated[
    bool,
    typer.Option("--controls/--no-controls", help="Also ask models that cannot know the answer."),
]
SeedOption = Annotated[int, typer.Option(help="Seed of all that is drawn.")]
SeedsOption = Annotated[int, typer.Option(min=1, help="How often what is drawn is drawn anew.")]


@dataclass(frozen=True)
class Run:
    """A run of a probe: of everything, or of a share to see how long it takes."""

    folder: Path  # for what is read
    share: float = 1.0

    def some(self, items: Sequence[Item]) -> Sequence[Item]:
        """The share of sentences that this run takes, from the beginning."""
        return items[: math.ceil(self.share * len(items))]

    @property
    def is_whole(self) -> bool:
        """Whether it is of everything."""
        return self.share == 1

    def least(self, wanted: int) -> int:
        """What is there less often is left out; of few sentences nothing is."""
        return wanted if self.is_whole else 1


Probe: TypeAlias = Callable[[Run], "list[Findings]"]


@dataclass(frozen=True)
class ProbeOptions:
    """The model, how much it reads, and where what was found goes."""

    model: ModelOption
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for tables, pictures and what was read. Default: probe-NAME."),
    ] = None
    sentences: Annotated[
        int | None, typer.Option(min=2, help="Most sentences to read of each file, evenly over it.")
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how long it will take.")] = (
        False
    )

    def check(self, jat: JatOptions) -> None:
        """Refuse heads that cannot be, before anything is imported or read."""
        check_heads(self.model, (jat.resolve(),))

    def load(self, jat: JatOptions) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """The model as it is, or with the jump heads that were asked for."""
        return load_model(self.model, jat)


def layers_of(text: str | None, model: str) -> tuple[int, ...] | None:
    """Layers of states that the model has, 0 for the embeddings."""
    layers = None if text is None else numbers("layer", text, int)
    check_states(model, layers or ())
    return layers


def read_split(folder: Path, split: str, most: int | None) -> list[Sentence]:
    """The sentences of one part of a treebank, or so many evenly over it: genres are in order."""
    from jat_graph.probes.treebank import read_treebank  # not by the probes, which import torch

    found = sorted(path for end in ("", ".gz") for path in folder.glob(f"*-{split}.conllu{end}"))
    if len(found) != 1:
        raise ValueError(
            f"--treebank must be a folder with one file *-{split}.conllu or .gz, "
            f"got {len(found)} in {folder}"
        )
    return evenly(read_treebank(found[0]), most)


def evenly(items: Sequence[Item], most: int | None) -> list[Item]:
    """So many of the items, evenly over them."""
    count = len(items) if most is None else min(most, len(items))
    return [items[n * len(items) // count] for n in range(count)]


def report(
    name: str, probe: Probe, whole: int, options: ProbeOptions, more: str | None = None
) -> None:
    """Say how long a probe of so many sentences will take, run it, and write what it found.

    ``more`` is what comes to it that a run of a few sentences does not tell.
    """
    from jat_graph.training.estimate import describe_time

    told = f"{whole} sentences: about {describe_time(_foresee(probe, whole))}, as a few have taken"
    told += "." if more is None else f"; {more} come to it."
    Console(stderr=True).print(told, soft_wrap=True)
    if options.dry_run:
        return
    folder = options.output or Path(f"probe-{name}")
    found = probe(Run(folder / ROWS_FOLDER))
    files = [path.name for findings in found for path in findings.save(folder)]
    for findings in found:
        show_findings(findings)
    Console().print(f"{', '.join(files)} are in {folder}.", soft_wrap=True)


def show_findings(findings: Findings) -> None:
    """Print a table, without intervals where they do not fit, and what it means."""
    from jat_graph.lab.tables import terminal_table

    numbers = findings.table.select_dtypes("number").columns
    words = [column for column in findings.table if column not in numbers]
    console = Console()
    shown = terminal_table(findings.cells(), words)
    if Console(width=WIDE).measure(shown).maximum > console.width:
        shown = terminal_table(findings.cells(intervals=False), words)
    console.print(shown)
    console.print(findings.caption, soft_wrap=True, highlight=False)


def _foresee(probe: Probe, whole: int) -> float:
    """The seconds that a probe will take; nothing is said or kept of the runs that tell."""
    from jat_graph.probes.estimate import foresee
    from jat_graph.progress import silent

    messages = logging.getLogger("jat_graph")
    level = messages.level
    messages.setLevel(logging.ERROR)
    try:
        with silent(), tempfile.TemporaryDirectory() as home:
            folders = (Path(home) / str(number) for number in itertools.count())
            return foresee(lambda count: probe(Run(next(folders), count / whole)), whole)
    finally:
        messages.setLevel(level)
