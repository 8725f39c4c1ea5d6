"""The attention probe: what the heads give two words tells of their relation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jat_graph.checks.numbers import check_integer
from jat_graph.hf import attached_config
from jat_graph.hf.adapter import attach
from jat_graph.probes.controls import random_weights
from jat_graph.probes.findings import Findings
from jat_graph.probes.syntax.classifier import guess
from jat_graph.probes.syntax.features import Described, Features, Parts, Question
from jat_graph.probes.syntax.pictures import draw_accuracies
from jat_graph.probes.syntax.reading import check_sentences, describe
from jat_graph.probes.syntax.samples import (
    Pairs,
    joined_or_not,
    of_each_relation,
    random_labels,
    shared_relations,
)
from jat_graph.probes.syntax.tally import Tally
from jat_graph.probes.treebank import Sentence
from jat_graph.probes.words import ATTENTION, WordReader
from jat_graph.progress import watched

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Draw: TypeAlias = Callable[[Sequence[Sentence], np.random.Generator], Pairs]

JOINED, WHICH = "is there a relation?", "which relation?"
DISTANCE, RANDOM, CONTROL, SELECTIVITY = (
    "word distance",
    "random weights",
    "control task",
    "selectivity",
)
FARTHEST = 20  # words, from which on the distance is one and the same
SEEDS = (0, 1, 2)


def attention_probe(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train: Sequence[Sentence],
    test: Sequence[Sentence],
    folder: str | Path,
    *,
    maps: str = ATTENTION,
    relations: int = 30,
    examples: int = 6000,
    seeds: Sequence[int] = SEEDS,
    batch_size: int = 32,
) -> Findings:
    """Tell from what all heads give two words whether they have a relation, and which.

    A pair of words is described by what each head of each layer gives from the earlier word to the
    later one and from the later to the earlier, 2 · C numbers for C heads; a decoder gives nothing
    to later words. Logistic regression on standardised numbers, with an L2 penalty chosen on a
    fifth of the sentences to learn from, tells whether one word is the head of the other, of as
    many pairs that are and are not, or which of the most frequent relations they have, of as many
    pairs of each. The earlier word comes first, so that nothing says which is the head.

    Four more rows make the number mean something: the number of words between the two alone; the
    same model with random weights, its jump heads as they are; the control task, a random label
    for every two word types, on the pairs whose types came together in what was learned from; and
    the selectivity, by how much the probe is better at the task than at the control task on these
    same pairs.

    Args:
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        train: Sentences to learn from.
        test: Sentences to be asked about.
        folder: Where what the model gives to the pairs is kept, to be found by the next call.
        maps: What describes pairs: ``"attention"``; of jump heads also ``"scores"``,
            ``"propagated"`` or ``"graph"``. (default: ``"attention"``)
        relations: How many of the most frequent relations are told apart. (default: 30)
        examples: Most pairs that are drawn of ``train``, and of ``test``, for each task and seed.
            (default: 6000)
        seeds: Each draws its own pairs, labels and weights. (default: (0, 1, 2))
        batch_size: Most sentences that the model reads at a time. (default: 32)

    Returns:
        The accuracies of all seeds together, with 95 % intervals over sentences, and those of the
        worst and the best seed.

    Raises:
        ValueError: If an argument does not fit the model or the sentences.
        OSError: If the folder cannot be written.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, NeurIPS 2019, section 3;
        Hewitt and Liang, *Designing and Interpreting Probes with Control Tasks*, EMNLP 2019.
    """
    _check(train, test, relations, examples, seeds)
    parts = train, test
    names = shared_relations(train, test, relations)
    questions = _questions(parts, names, examples, seeds)
    features = Features(Path(folder), parts, questions)
    own = features.of(WordReader(model, tokenizer, maps, batch_size))
    twins = [
        features.of(WordReader(_twin(model, seed), tokenizer, maps, batch_size), place)
        for place, seed in enumerate(seeds)
    ]
    tallies = _tallies(questions, parts, maps, own, twins)
    settings = describe(model, maps) | {
        "relations": list(names),
        "seeds": list(seeds),
        "sentences": [len(train), len(test)],
    }
    return _findings(tallies, questions, settings)


def _check(
    train: Sequence[Sentence],
    test: Sequence[Sentence],
    relations: int,
    examples: int,
    seeds: Sequence[int],
) -> None:
    check_sentences("train", train)
    check_sentences("test", test)
    check_integer("relations", relations, least=2)
    check_integer("examples", examples, least=2)
    if not seeds:
        raise ValueError(f"seeds must be one or more integers, got {seeds!r}")
    for seed in seeds:
        check_integer("seeds", seed, least=0)


def _questions(
    parts: Parts, names: Sequence[str], examples: int, seeds: Sequence[int]
) -> list[Question]:
    tasks: dict[str, tuple[int, Draw]] = {
        JOINED: (2, lambda part, draw: joined_or_not(part, examples, draw)),
        WHICH: (len(names), lambda part, draw: of_each_relation(part, names, examples, draw)),
    }
    found = []
    for place, seed in enumerate(seeds):
        for task, (classes, pairs_of) in tasks.items():
            generator = np.random.default_rng(seed)
            train, test = (pairs_of(part, generator) for part in parts)
            found.append(Question(task, place, seed, classes, (train, test)))
    return found


def _twin(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """Return a model of random weights that jumps as the given one does."""
    twin, config = random_weights(model, seed), attached_config(model)
    return twin if config is None else attach(twin, config)


def _tallies(
    questions: Sequence[Question],
    parts: Parts,
    maps: str,
    own: dict[int, list[Described]],
    twins: Sequence[dict[int, list[Described]]],
) -> dict[tuple[str, str], Tally]:
    """Learn and ask, whatever the pairs are described by."""
    seeds = 1 + max(question.place for question in questions)
    sources = (maps, DISTANCE, RANDOM, CONTROL, SELECTIVITY)
    tallies = {
        (task, source): Tally(seeds, len(parts[1]))
        for task in dict.fromkeys(question.task for question in questions)
        for source in sources
    }
    for number, question in watched(enumerate(questions), "Fitting probes", len(questions)):
        given = {maps: own[number], RANDOM: twins[question.place][number]}
        given[DISTANCE] = [_distances(pairs) for pairs in question.parts]
        for source, described in given.items():
            test = question.parts[1]
            labels = test.labels[described[1].places]
            right = _guess(question, described, [p.labels for p in question.parts]) == labels
            tallies[question.task, source].add(
                question.place, test.rows[described[1].places], right
            )
            if source == maps:
                _ask_control(question, parts, described, right, tallies)
    return tallies


def _ask_control(
    question: Question,
    parts: Parts,
    described: list[Described],
    right: np.ndarray[Any, np.dtype[np.bool_]],
    tallies: dict[tuple[str, str], Tally],
) -> None:
    """Ask for random labels of word types, where these came together before."""
    both = [(pairs, sentences) for pairs, sentences in zip(question.parts, parts, strict=True)]
    generator = np.random.default_rng(question.seed)
    labels, met = random_labels(both, question.classes, generator)
    places = described[1].places
    guessed = _guess(question, described, labels) == labels[1][places]
    seen, rows = np.isin(places, met), question.parts[1].rows[places]
    tallies[question.task, CONTROL].add(question.place, rows[seen], guessed[seen])
    better = right[seen].astype(float) - guessed[seen]
    tallies[question.task, SELECTIVITY].add(question.place, rows[seen], better)


def _guess(question: Question, described: list[Described], labels: Sequence[Any]) -> Any:
    """Learn labels of the pairs that a model has read, and guess them for others."""
    learned, asked = described
    rows = question.parts[0].rows[learned.places]
    known = labels[0][learned.places]
    return guess(learned.values, known, rows, asked.values, question.seed)


def _distances(pairs: Pairs) -> Described:
    """Describe pairs by how many words they are apart, a column for each number."""
    values = np.eye(FARTHEST + 1, dtype=np.float32)[np.minimum(pairs.distances, FARTHEST)]
    return Described(np.arange(len(pairs)), values)


def _findings(
    tallies: dict[tuple[str, str], Tally],
    questions: Sequence[Question],
    settings: dict[str, Any],
) -> Findings:
    import pandas as pd

    classes = {question.task: question.classes for question in questions}
    chance = {task: 1 / number for task, number in classes.items()}
    table = pd.DataFrame(
        [
            {
                "task": task,
                "told from": source,
                **tally.row(),
                "chance": 0.0 if source == SELECTIVITY else chance[task],
            }
            for (task, source), tally in tallies.items()
        ]
    )
    sizes = {question.task: [len(pairs) for pairs in question.parts] for question in questions}
    caption = (
        "Accuracy of a linear model that is told what all heads give two words, and says whether "
        f"one is the head of the other, or which of {classes[WHICH]} relations they have; classes "
        "are balanced. A probe means something where it beats the word distance and random "
        "weights. The control task has random labels for every two word types, asked where these "
        "came together in training; selectivity is the accuracy on those same pairs, less that of "
        "the control task. Intervals of 95 % over sentences; least and most are of the seeds."
    )
    return Findings(
        "attention",
        caption,
        table,
        settings | {"pairs": sizes},
        {"attention": draw_accuracies(table)},
        ("task", "told from"),
    )
