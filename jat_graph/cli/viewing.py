"""The command that writes a page to look at: ``view``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from jat_graph.cli.beforehand import check_heads, check_look
from jat_graph.cli.inputs import LookOptions, ModelOption, TextOptions, load_model
from jat_graph.cli.option_texts import span
from jat_graph.cli.options import JatOptions, gather
from jat_graph.files import check_target

if TYPE_CHECKING:
    from jat_graph.probes import Sentence


FIRST_SENTENCES = 3


@gather(given=TextOptions, look=LookOptions, jat=JatOptions)
def view_command(
    model: ModelOption,
    given: TextOptions,
    look: LookOptions,
    jat: JatOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="Page to write.")] = Path(
        "page.html"
    ),
    treebank: Annotated[
        Path | None,
        typer.Option(help="Sentences with their trees: CoNLL-U, plain or packed by gzip."),
    ] = None,
    sentence_number: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST[:END]",
            help="Which of them, from 1: 5, or 5:8 for 5 to 7. Default: the first three.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title. Default: the model's name.")] = None,
) -> None:
    """Write one page that shows heads on texts: all of them, one by one, jumps, stones and trees.

    The page is one file that any browser opens, without a network. Of a model without jump heads it
    shows attention; with --config, --preset or any other option of jump heads, and of a model that
    was saved with such heads, also the attention before the jump, the difference and the graph: a
    click on a pair shows the stones that joined it. Trees are drawn of the sentences of --treebank.
    """
    check_target(output)
    chosen = look.resolve()
    check_heads(model, (jat.resolve(),))
    check_look(model, chosen)
    texts: list[str | Sentence] = []
    if given.text is not None or given.sentence or treebank is None:
        texts += given.read("view", "--treebank")
    if treebank is not None:
        texts += _sentences(treebank, sentence_number)
    loaded, tokenizer = load_model(model, jat)
    from jat_graph.probes import view

    page = view(loaded, tokenizer, texts, title=title or Path(model).name, **chosen)
    page.save(output)
    size = output.stat().st_size / 1e6
    Console().print(f"The page is in {output} ({size:.1f} MB); open it in a browser.")


def _sentences(treebank: Path, numbers: str | None) -> list[Sentence]:
    """The sentences asked for, counted from 1."""
    from jat_graph.probes.treebank import read_treebank  # not by the probes, which import torch

    if numbers is None:
        return read_treebank(treebank, most=FIRST_SENTENCES)
    one = numbers.strip().isdecimal()
    wanted = span("sentence-number", f"{numbers}:{int(numbers) + 1}" if one else numbers)
    if wanted.start < 1:
        raise ValueError(f"--sentence-number must count from 1, got {numbers}")
    found = read_treebank(treebank, most=wanted.stop - 1)
    if len(found) < wanted.stop - 1:
        raise ValueError(
            f"--sentence-number must be of the {len(found)} in {treebank}, got {numbers}"
        )
    return found[wanted.start - 1 :]
