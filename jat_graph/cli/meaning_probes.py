"""The commands of ``probe`` that ask what states tell of meaning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jat_graph.cli.options import JatOptions, gather
from jat_graph.cli.probe_options import (
    BatchOption,
    ControlsOption,
    LayersOption,
    ProbeOptions,
    RankOption,
    Run,
    SeedOption,
    evenly,
    layers_of,
    report,
)

if TYPE_CHECKING:
    from jat_graph.probes import Findings

MOST = 1000  # uses of a word that are laid out

SemcorOption = Annotated[
    Path, typer.Option(help="semcor3.0.tar.gz, or the folder that it unpacks to.")
]
WordnetOption = Annotated[
    Path | None,
    typer.Option(help="Folder of WordNet 3.0. Default: nltk's data, or Debian's package."),
]


@gather(given=ProbeOptions, jat=JatOptions)
def senses_command(
    given: ProbeOptions,
    jat: JatOptions,
    semcor: SemcorOption,
    evaluation: Annotated[
        Path, typer.Option(help="Folder with sets NAME.data.xml and NAME.gold.key.txt.")
    ],
    wordnet: WordnetOption = None,
    layer: LayersOption = None,
    rank: RankOption = None,
    seeds: Annotated[int, typer.Option(min=0, help="Seeds of the semantic probe; 0 for none.")] = 3,
    controls: ControlsOption = True,
    batch_size: BatchOption = 32,
) -> None:
    """Find the senses of words by the nearest centroid of SemCor's senses: F1 for each layer.

    Beside it stand the most frequent sense, WordNet's first one, random weights, and the semantic
    probe, a linear map that is trained to tell senses apart.
    """
    given.check(jat)
    layers = layers_of(layer, given.model)
    from jat_graph.probes import open_wordnet, read_evaluation, read_semcor

    senses = open_wordnet(wordnet)
    tests = read_evaluation(evaluation, senses)
    training = evenly(read_semcor(semcor, senses), given.sentences)
    model, tokenizer = given.load(jat)

    def probe(run: Run) -> list[Findings]:
        from jat_graph.probes import sense_probe

        found = sense_probe(
            model,
            tokenizer,
            run.some(training),
            {name: run.some(sentences) for name, sentences in tests.items()},
            senses,
            run.folder,
            layers=layers,
            rank=rank,
            seeds=range(seeds) if run.is_whole else (),
            controls=controls,
            batch_size=batch_size,
        )
        return [found]

    more = f"{seeds} trainings of the semantic probe for each layer" if seeds else None
    report("senses", probe, len(training), given, more)


@gather(given=ProbeOptions, jat=JatOptions)
def ratio_command(
    given: ProbeOptions,
    jat: JatOptions,
    semcor: SemcorOption,
    wordnet: WordnetOption = None,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of sentences.")] = 1000,
    layer: LayersOption = None,
    rank: RankOption = None,
    seed: SeedOption = 0,
    batch_size: BatchOption = 32,
) -> None:
    """Ask how far another sense of a word in the same sentence draws it from its own.

    Of two sentences alone, joined by "and", and joined to a random one.
    """
    given.check(jat)
    layers = layers_of(layer, given.model)
    from jat_graph.probes import open_wordnet, read_semcor

    senses = open_wordnet(wordnet)
    training = evenly(read_semcor(semcor, senses), given.sentences)
    model, tokenizer = given.load(jat)

    def probe(run: Run) -> list[Findings]:
        from jat_graph.probes import sense_probe, similarity_ratio

        if not run.is_whole:  # a few sentences have too few senses: see how long they are read
            few = run.some(training)
            data = (few, {"few": few}, senses, run.folder)
            return [sense_probe(model, tokenizer, *data, seeds=(), controls=False)]
        found = similarity_ratio(
            model,
            tokenizer,
            training,
            run.folder,
            pairs=pairs,
            layers=layers,
            rank=rank,
            seed=seed,
            batch_size=batch_size,
        )
        return [found]

    more = "a training of the semantic probe for each layer, and the pairs,"
    report("ratio", probe, len(training), given, more)


@gather(given=ProbeOptions, jat=JatOptions)
def atlas_command(
    given: ProbeOptions,
    jat: JatOptions,
    word: Annotated[str, typer.Option(help="The word, in any case; other forms are other words.")],
    texts: Annotated[
        list[Path],
        typer.Option(
            help="File or folder: texts, CoNLL-U, Brown as a .zip, SemCor as a .tar.gz; repeatable."
        ),
    ],
    layer: LayersOption = None,
    seed: SeedOption = 0,
    batch_size: BatchOption = 32,
) -> None:
    """Lay out the uses of a word in the plane, layer by layer: a page that one opens.

    UMAP lays them out (extra atlas), or PCA without it. Colours are clusters, which are labelled
    with the words that tell them apart, and parts of speech and senses where texts have them.
    """
    given.check(jat)
    layers = layers_of(layer, given.model)
    from jat_graph.probes import open_wordnet, read_contexts
    from jat_graph.probes.atlas.search import find_uses

    contexts, most = list(read_contexts(texts)), given.sentences or MOST
    uses = find_uses(word, contexts, most, seed).contexts
    senses = open_wordnet() if any(own.senses for own in uses) else None
    model, tokenizer = given.load(jat)

    def probe(run: Run) -> list[Findings]:
        from jat_graph.probes import context_atlas

        found = context_atlas(
            word,
            contexts if run.is_whole else run.some(uses),
            model,
            tokenizer,
            run.folder,
            most=most,
            layers=layers,
            wordnet=senses,
            seed=seed,
            batch_size=batch_size,
        )
        return [found]

    report("atlas", probe, len(uses), given)
