"""The commands of ``probe`` that ask what heads know of syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jat_graph.checks.numbers import check_choice
from jat_graph.cli.options import JatOptions, gather
from jat_graph.cli.probe_options import (
    BatchOption,
    LeastOption,
    ProbeOptions,
    Run,
    SeedOption,
    SeedsOption,
    TreebankOption,
    read_split,
    report,
)

if TYPE_CHECKING:
    from jat_graph.probes import Findings

MAPS = ("attention", "scores", "propagated", "graph")


def _check_maps(maps: str) -> str:
    check_choice("--maps", maps, MAPS)
    return maps


MapsOption = Annotated[
    str,
    typer.Option(
        help=f"What is looked at: attention, or of jump heads {', '.join(MAPS[1:])}.",
        callback=_check_maps,
    ),
]


@gather(given=ProbeOptions, jat=JatOptions)
def attention_command(
    given: ProbeOptions,
    jat: JatOptions,
    treebank: TreebankOption,
    maps: MapsOption = "attention",
    relations: Annotated[int, typer.Option(min=2, help="Relations that are told apart.")] = 30,
    examples: Annotated[int, typer.Option(min=10, help="Most pairs for a task and seed.")] = 6000,
    seeds: SeedsOption = 3,
    batch_size: BatchOption = 32,
) -> None:
    """Tell from what all heads give two words whether they are related, and how.

    Learned on train, asked of test. Word distance, random weights and random labels stand beside
    it: what these can do says nothing about the model.
    """
    given.check(jat)
    train, test = (read_split(treebank, split, given.sentences) for split in ("train", "test"))
    model, tokenizer = given.load(jat)

    def probe(run: Run) -> list[Findings]:
        from jat_graph.probes import attention_probe

        found = attention_probe(
            model,
            tokenizer,
            run.some(train),
            run.some(test),
            run.folder,
            maps=maps,
            relations=relations if run.is_whole else 2,
            examples=examples,
            seeds=range(seeds),
            batch_size=batch_size,
        )
        return [found]

    report("attention", probe, len(train), given)


@gather(given=ProbeOptions, jat=JatOptions)
def heads_command(
    given: ProbeOptions,
    jat: JatOptions,
    treebank: TreebankOption,
    maps: MapsOption = "attention",
    least: LeastOption = 50,
    seed: SeedOption = 0,
    batch_size: BatchOption = 32,
) -> None:
    """Find the head that knows each relation best, beside the best fixed offset.

    Chosen on one half of dev, scored on the other.
    """
    given.check(jat)
    sentences = read_split(treebank, "dev", given.sentences)
    model, tokenizer = given.load(jat)

    def probe(run: Run) -> list[Findings]:
        from jat_graph.probes import best_heads

        found = best_heads(
            model,
            tokenizer,
            run.some(sentences),
            run.folder,
            maps=maps,
            least=run.least(least),
            seed=seed,
            batch_size=batch_size,
        )
        return [found]

    report("heads", probe, len(sentences), given)


@gather(given=ProbeOptions, jat=JatOptions)
def graphs_command(
    given: ProbeOptions,
    jat: JatOptions,
    treebank: TreebankOption,
    maps: MapsOption = "graph",
    density: Annotated[
        float, typer.Option(min=0, max=1, help="Share of pairs that each head joins.")
    ] = 0.05,
    least: LeastOption = 50,
    seed: SeedOption = 0,
    batch_size: BatchOption = 32,
) -> None:
    """Say how much more often than chance the words that jump heads join are related in the tree.

    One table over relations, one over heads, of the sentences of dev.
    """
    given.check(jat)
    sentences = read_split(treebank, "dev", given.sentences)
    model, tokenizer = given.load(jat)

    def probe(run: Run) -> list[Findings]:
        from jat_graph.probes import graphs_and_trees

        return [
            graphs_and_trees(
                model,
                tokenizer,
                run.some(sentences),
                run.folder,
                maps=maps,
                each=each,
                density=density,
                least=run.least(least),
                seed=seed,
                batch_size=batch_size,
            )
            for each in ("relations", "heads")
        ]

    report("graphs", probe, len(sentences), given)
