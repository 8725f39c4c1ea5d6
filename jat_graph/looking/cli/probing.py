"""The command ``probe``: what a model knows of syntax, trees and senses."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from jat_graph.looking.cli.options import (
    ConfigOption,
    ModelOption,
    SetOption,
    load_model,
    read_values,
)

if TYPE_CHECKING:
    from jat_graph.looking.probes import Findings

Item = TypeVar("Item")

MOST_TREES = 4000  # to train on; all 12,544 of a large treebank take three times as long
TREEBANK, SEMCOR, EVALUATION, TEXTS, WORD = "treebank", "semcor", "evaluation", "texts", "word"
# What each command asks, and the data that it needs.
KINDS = {
    "attention": ("Does the attention between two words tell how they are related?", [TREEBANK]),
    "heads": ("Which head knows each relation best, beside the best fixed offset?", [TREEBANK]),
    "graphs": ("Are words that jump heads join related more often than by chance?", [TREEBANK]),
    "tree": ("Does a linear map of the states give the tree?", [TREEBANK]),
    "distance": ("Which power of a distance equals that in the tree?", [TREEBANK]),
    "senses": ("Does the nearest centroid give the sense of a word?", [SEMCOR, EVALUATION]),
    "ratio": ("Does another sense in the sentence draw a word away from its own?", [SEMCOR]),
    "atlas": ("Where do the uses of a word lie, layer by layer?", [TEXTS, WORD]),
}
FUNCTIONS = dict(
    attention="attention_probe", heads="best_heads", graphs="graphs_and_trees",
    tree="structural_probe", distance="tree_distances", senses="sense_probe",
    ratio="similarity_ratio", atlas="context_atlas",
)  # fmt: skip
SPLITS = {"attention": ("train", "test"), "heads": ("dev",), "graphs": ("dev",)}

probe_app = typer.Typer(
    help="Test what a model knows about syntax, trees and senses.", rich_markup_mode=None
)


def probe_command(
    context: typer.Context,
    model: ModelOption,
    config: ConfigOption = None,
    changes: SetOption = None,
    treebank: Annotated[
        Path | None,
        typer.Option(help="Folder with a treebank's files *-train.conllu, dev and test, or .gz."),
    ] = None,
    semcor: Annotated[
        Path | None, typer.Option(help="semcor3.0.tar.gz, or the folder that it unpacks to.")
    ] = None,
    evaluation: Annotated[
        Path | None, typer.Option(help="Folder with sets NAME.data.xml and NAME.gold.key.txt.")
    ] = None,
    wordnet: Annotated[
        Path | None,
        typer.Option(help="Folder of WordNet 3.0. Default: nltk's data, or Debian's package."),
    ] = None,
    texts: Annotated[
        list[Path] | None,
        typer.Option(help="Text, CoNLL-U, Brown as .zip, SemCor as .tar.gz, a folder; repeatable."),
    ] = None,
    word: Annotated[str | None, typer.Option(help="The word, in upper or lower case.")] = None,
    sentences: Annotated[
        int | None,
        typer.Option(min=2, help="Largest number of sentences from each file, drawn evenly."),
    ] = None,
    options: Annotated[
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
    kind = str(context.info_name)
    given: dict[str, Any] = {
        TREEBANK: treebank, SEMCOR: semcor, EVALUATION: evaluation, TEXTS: texts, WORD: word
    }  # fmt: skip
    for name, value in given.items():
        if (value in (None, [])) == (name in KINDS[kind][1]):
            verb = "needs" if name in KINDS[kind][1] else "takes no"
            raise ValueError(f"probe {kind} {verb} --{name}")
    folder = output or Path(f"probe-{kind}")
    from jat_graph.looking import probes

    probe, asked = getattr(probes, FUNCTIONS[kind]), read_values("--option", options)
    parameters = inspect.signature(probe).parameters.values()
    names = {own.name for own in parameters if own.kind is own.KEYWORD_ONLY} - {"wordnet"}
    if asked.keys() - names:
        raise ValueError(
            f"--option must be NAME=VALUE of {', '.join(sorted(names))}, got {options}"
        )
    data, more = _read_data(kind, given, sentences, wordnet)
    loaded, tokenizer = load_model(model, config, changes)
    found = probe(probes.WordReader(loaded, tokenizer, folder / "rows"), *data, **more | asked)
    _report(found if isinstance(found, tuple) else (found,), folder)


def _read_data(
    kind: str, given: dict[str, Any], sentences: int | None, wordnet: Path | None
) -> tuple[list[Any], dict[str, Any]]:
    """What a probe is given beside the model, and arguments that follow from it."""
    from jat_graph.looking import probes

    if TREEBANK in KINDS[kind][1]:
        splits = SPLITS.get(kind, ("train", "dev", "test"))
        data = [probes.read_treebank(given[TREEBANK], split=split) for split in splits]
        first = sentences or (MOST_TREES if kind in ("tree", "distance") else None)
        return [evenly(data[0], first), *(evenly(own, sentences) for own in data[1:])], {}
    if TEXTS in KINDS[kind][1]:
        contexts = list(probes.read_contexts(given[TEXTS]))
        known = any(own.senses for own in contexts)
        senses = probes.open_wordnet(wordnet) if known else None
        return [given[WORD], contexts], {"most": sentences or 1000, "wordnet": senses}
    senses = probes.open_wordnet(wordnet)
    tests = () if kind == "ratio" else (probes.read_evaluation(given[EVALUATION], senses), senses)
    return [evenly(probes.read_semcor(given[SEMCOR], senses), sentences), *tests], {}


def evenly(items: Sequence[Item], most: int | None) -> list[Item]:
    """Return so many of the items, evenly over them: genres of a treebank are in order."""
    count = len(items) if most is None else min(most, len(items))
    return [items[index * len(items) // count] for index in range(count)]


def _report(found: Sequence[Findings], folder: Path) -> None:
    """Write and show what was found."""
    files = [path.name for one in found for path in one.save(folder)]
    for one in found:
        typer.echo(one.to_markdown())
    typer.echo(f"{', '.join(files)} are in {folder}.")


for _kind, (_asks, _data) in KINDS.items():
    probe_app.command(_kind, help=f"{_asks} Needs --{' and --'.join(_data)}.")(probe_command)


@probe_app.command("compare")
def compare_command(
    variant: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=FILES",
            help="A probe's JSON files, one for each run, as 'base=runs/base/*/tree.json'.",
        ),
    ],
    value: Annotated[
        str | None, typer.Option(help="Column to compare. Default: the first of fractions.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for table and picture.")] = Path(
        "probe-compare"
    ),
) -> None:
    """Compare the results of one probe for several models, with intervals over runs."""
    found: dict[str, list[Path]] = {}
    for given in variant:
        name, equals, pattern = given.partition("=")
        if not (name and equals and pattern) or name in found:
            raise ValueError(f"--variant must be NAME=FILES with names that differ, got {given!r}")
        found[name] = sorted(map(Path, glob(pattern, recursive=True)))
        if not found[name]:
            raise ValueError(f"--variant {name} must name files that exist, got {pattern}")
    from jat_graph.looking.probes import compare_findings

    _report([compare_findings(found, value)], output)
