"""The commands of ``probe`` that ask for trees in the geometry of states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from jat_graph.cli.beforehand import check_states
from jat_graph.cli.options import JatOptions, gather
from jat_graph.cli.probe_options import (
    ControlsOption,
    LayersOption,
    LeastOption,
    ProbeOptions,
    RankOption,
    Run,
    SeedOption,
    SeedsOption,
    TreebankOption,
    layers_of,
    read_split,
    report,
)

if TYPE_CHECKING:
    from pathlib import Path

    from jat_graph.probes import Findings, Sentence

EpochsOption = Annotated[int, typer.Option(min=1, help="Most passes over the sentences.")]


MOST = 4000  # sentences to train on; all 12,544 of a large treebank take three times as long


@gather(given=ProbeOptions, jat=JatOptions)
def tree_command(
    given: ProbeOptions,
    jat: JatOptions,
    treebank: TreebankOption,
    layer: LayersOption = None,
    rank: RankOption = 128,
    epochs: EpochsOption = 30,
    seeds: SeedsOption = 1,
    controls: ControlsOption = True,
) -> None:
    """Ask how much of dependency trees is in the distances between the states of words.

    Trained on train, stopped by dev, scored on test, beside random weights, the words in a line
    and, of a model with jump heads, itself without its jumps.
    """
    given.check(jat)
    layers = layers_of(layer, given.model)
    splits = _read_splits(treebank, given.sentences)
    model, tokenizer = given.load(jat)

    def probe(run: Run) -> list[Findings]:
        from jat_graph.probes import structural_probe

        train, dev, test = map(run.some, splits)
        found = structural_probe(
            model,
            tokenizer,
            train,
            dev,
            test,
            run.folder,
            layers=layers,
            rank=rank,
            most=None,
            epochs=epochs,
            seeds=range(seeds),
            controls=controls,
        )
        return [found]

    report("tree", probe, len(splits[0]), given)


@gather(given=ProbeOptions, jat=JatOptions)
def distance_command(
    given: ProbeOptions,
    jat: JatOptions,
    treebank: TreebankOption,
    layer: Annotated[
        int | None, typer.Option(min=0, help="After which layer. Default: the middle one.")
    ] = None,
    rank: RankOption = 128,
    epochs: EpochsOption = 30,
    least: LeastOption = 30,
    seed: SeedOption = 0,
) -> None:
    """Hold squared distances between the states of words against those in the tree.

    One table over powers of the distance, one over relations, of the sentences of test.
    """
    given.check(jat)
    check_states(given.model, () if layer is None else (layer,))
    splits = _read_splits(treebank, given.sentences)
    model, tokenizer = given.load(jat)

    def probe(run: Run) -> list[Findings]:
        from jat_graph.probes import relation_distances, tree_distances

        train, dev, test = map(run.some, splits)
        own: dict[str, Any] = {
            "layer": layer,
            "rank": rank,
            "epochs": epochs,
            "seed": seed,
            "most": None,
        }
        powers = tree_distances(model, tokenizer, train, dev, test, run.folder, **own)
        own["least"] = run.least(least)
        return [powers, relation_distances(model, tokenizer, train, dev, test, run.folder, **own)]

    report("distance", probe, len(splits[0]), given)


def _read_splits(treebank: Path, most: int | None) -> list[list[Sentence]]:
    train = read_split(treebank, "train", most or MOST)
    return [train, *(read_split(treebank, part, most) for part in ("dev", "test"))]
