"""How well the nearest centroid of a sense in SemCor finds the senses of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.checks.numbers import check_flag, check_indices, check_integer
from jat_graph.probes.controls import random_weights
from jat_graph.probes.findings import Findings
from jat_graph.probes.meaning.answers import (
    ALL,
    AMBIGUOUS,
    METHODS,
    NEAREST,
    PROBE,
    RANDOM,
    Answers,
)
from jat_graph.probes.meaning.marked import MarkedSentence
from jat_graph.probes.meaning.pictures import draw_senses
from jat_graph.probes.meaning.wordnet import WordNet
from jat_graph.probes.words import WordReader, check_layers
from jat_graph.progress import watched

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def sense_probe(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    training: Sequence[MarkedSentence],
    tests: Mapping[str, Sequence[MarkedSentence]],
    wordnet: WordNet,
    folder: str | Path,
    *,
    layers: Sequence[int] | None = None,
    rank: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    controls: bool = True,
    batch_size: int = 32,
) -> Findings:
    r"""Ask after each layer of a model how well states of words tell their senses apart.

    A sense's centroid is the mean state of the words that have it in the training; a word of
    several is the mean over them. The answer for a word is, of the senses of its lemma and part
    of speech, the one with the largest cosine between centroid and state; where the training has
    none of them it is WordNet's first sense. As every word gets an answer, F1 is the share of
    right ones.

    The semantic probe is a linear map :math:`B` trained so that the mean cosine of words in
    different senses, less that of words in the same sense, is small; terms further than 0.1 from
    their average before training have no part in it. A tenth of the texts says when to end, after
    300 steps at the latest.

    Args:
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        training: Sentences with senses, from :func:`read_semcor`.
        tests: Sets of them by name, from :func:`read_evaluation`.
        wordnet: The senses of words, from :func:`open_wordnet`.
        folder: Where states are kept: 1.5 KB for each word and layer at a width of 384. The next
            call finds them there, and goes on where one was interrupted.
        layers: Layers to ask after; 0 is the embeddings. (default: None, all)
        rank: Rows of :math:`B`. (default: None, the model's width)
        seeds: Seeds of the semantic probe; none for no such probe. (default: ``(0, 1, 2)``)
        controls: Whether random weights are asked as well, which takes as long as the model.
            (default: True)
        batch_size: Most sentences that the model reads at a time. (default: 32)

    Returns:
        F1 on each set, on all of them with the 95 % interval over sentences, and on the words of
        which the training has several senses; for the semantic probe the mean over seeds and the
        distance between the best and the worst.

    Raises:
        ValueError: If an option is not in its range, or there is nothing to learn from.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 4; Raganato,
        Camacho-Collados and Navigli, *Word Sense Disambiguation: A Unified Evaluation Framework
        and Empirical Comparison*, 2017.
    """
    import pandas as pd

    chosen = check_layers(model, layers)
    rank = check_rank(rank, model)
    seeds = check_indices("seeds", seeds) if len(seeds) else ()
    check_flag("controls", controls)
    reader = WordReader(model, tokenizer, batch_size=batch_size)
    answers = Answers.of(reader, training, tests, wordnet, folder)
    rows = answers.baselines() + [answers.nearest(layer) for layer in chosen]
    if seeds:
        for layer in watched(chosen, "Training semantic probes", len(chosen)):
            rows += answers.mapped(layer, rank, seeds)
    if controls:
        twin = WordReader(random_weights(model), tokenizer, batch_size=batch_size)
        control = Answers.of(twin, training, tests, wordnet, folder)
        rows += [control.nearest(layer, RANDOM) for layer in chosen]
    table = pd.DataFrame(rows).sort_values("method", key=_order, kind="stable", ignore_index=True)
    table["layer"] = table["layer"].astype("Int64")
    return Findings(
        "senses",
        _caption(table, answers),
        table,
        {
            "rank": rank,
            "seeds": list(seeds),
            "training_words": int(answers.training.is_read.sum()),
            "training_senses": len(answers.table.number),
            "words": {k: int(v) for k, v in answers.counts.items()},
            "sentences_not_read": len(answers.tests.rows.left_out),
        },
        {"senses": draw_senses(table)},
        ("method", "layer"),
    )


def check_rank(rank: int | None, model: PreTrainedModel) -> int:
    """Return the rank of a map of a model's states; their width unless one is given."""
    width = model.config.hidden_size
    return width if rank is None else check_integer("rank", rank, least=1, below=width + 1)


def _order(methods: pd.Series) -> pd.Series:
    return methods.map({name: place for place, name in enumerate(METHODS)})


def _caption(table: pd.DataFrame, answers: Answers) -> str:
    """Say what the numbers are, and the best of them."""
    own = table[table["method"] == NEAREST]
    best = own.loc[own[ALL].idxmax()]
    known = answers.counts
    mapped = (
        "The semantic probe is the mean over seeds, spread the distance between the best and the "
        "worst; it says something where it beats the random map that it began as. "
    )
    return (
        "Share of words whose sense the nearest centroid in SemCor finds (F1), after each layer; "
        "behind that on all sets together is its 95 % interval over sentences. "
        f"The best layer is {best['layer']}: {best[ALL]:.3f}. "
        f"Of {known[ALL]} words {known[AMBIGUOUS]} have several senses in the training "
        f"(column {AMBIGUOUS}); only there can states change the answer. "
        f"{mapped if PROBE in set(table['method']) else ''}"
        "That senses can be told apart does not say that the model uses them."
    )
