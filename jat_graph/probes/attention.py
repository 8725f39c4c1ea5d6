"""The attention probe: what the heads give two words tells of their relation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jat_graph.checks.numbers import check_indices, check_integer
from jat_graph.data.reading import ATTENTION
from jat_graph.probes.findings import Findings, Floats, Integers, resampled_ratio
from jat_graph.probes.pairs import Pairs, joined_or_not, of_each_relation, random_labels
from jat_graph.probes.pictures import QUIET, draw_rows
from jat_graph.probes.treebank import Sentence, frequent_relations
from jat_graph.probes.words import WordReader, check_sentences, random_weights
from jat_graph.progress import track_progress
from jat_graph.viz.figures import new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

JOINED, WHICH = "is there a relation?", "which relation?"
DISTANCE, RANDOM = "word distance", "random weights"
CONTROL, SELECTIVITY = "control task", "selectivity"
FARTHEST = 20  # words, from which on the distance is one and the same
PENALTIES = (0.003, 0.03, 0.3, 3.0)  # C of scikit-learn: large is free
LEAST = 10  # sentences, of which a fifth can be spared to choose among them

CAPTION = (
    "Accuracy of a linear model that is told what all heads give two words, and says whether one "
    "is the head of the other, or which relation they have; classes are balanced. A probe means "
    "something where it beats the word distance and random weights. The control task has random "
    "labels for every two word types, asked where these came together in training; selectivity is "
    "the accuracy on those same pairs, less that of the control task. Intervals of 95 % over "
    "sentences; least and most are of the seeds."
)


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
    seeds: Sequence[int] = (0, 1, 2),
) -> Findings:
    """Tell from what all heads give two words whether they have a relation, and which.

    A pair of words is described by what each head of each layer gives from the earlier word to the
    later one and from the later to the earlier, 2 · C numbers for C heads; a decoder gives nothing
    to later words. Logistic regression on standardised numbers, with an L2 penalty chosen on a
    fifth of the sentences to learn from, tells whether one word is the head of the other, of as
    many pairs that are and are not, or which of the most frequent relations they have, of as many
    pairs of each. The earlier word comes first, so that nothing says which is the head.

    Beside it stand the number of words between the two alone; the same model with random weights,
    its jump heads as they are; the control task, a random label for every two word types, on the
    pairs whose types came together in what was learned from; and the selectivity, by how much the
    probe is better at the task than at the control task on these same pairs.

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
    check_sentences(train=train, test=test)
    check_integer("relations", relations, least=2)
    check_integer("examples", examples, least=2)
    seeds = check_indices("seeds", seeds)
    there = dict(frequent_relations(test))
    names = [name for name, _ in frequent_relations(train) if name in there][:relations]
    if len(names) < 2:
        raise ValueError(f"train and test must share two relations at least, got {names}")

    draws: dict[str, Callable[[Sequence[Sentence], np.random.Generator], Pairs]] = {
        JOINED: lambda part, chance: joined_or_not(part, examples, chance),
        WHICH: lambda part, chance: of_each_relation(part, names, examples, chance),
    }
    drawn: dict[tuple[str, int], list[Pairs]] = {}
    for seed in seeds:
        for task, draw in draws.items():
            chance = np.random.default_rng(seed)
            drawn[task, seed] = [draw(part, chance) for part in (train, test)]
    reader = WordReader(model, tokenizer, folder, maps)
    own = _describe(reader, (train, test), drawn)
    random: dict[tuple[str, int], list[Described]] = {}
    for seed in seeds:
        twin = random_weights(model, seed, jumping=True)
        some = {place: pairs for place, pairs in drawn.items() if place[1] == seed}
        twin_reader = WordReader(twin, tokenizer, folder, maps)
        random |= _describe(twin_reader, (train, test), some)

    classes = {JOINED: 2, WHICH: len(names)}
    answers = []
    for (task, seed), pairs in track_progress(drawn.items(), "Fitting probes", len(drawn)):
        learned, asked = pairs
        given = {maps: own[task, seed], RANDOM: random[task, seed]}
        given[DISTANCE] = [(np.arange(len(part)), _one_hot_distances(part)) for part in pairs]
        labels = [part.labels for part in pairs]
        right = {}
        for source, described in given.items():
            right[source] = _is_right(described, labels, learned.rows, seed)
            answers.append((task, source, seed, asked.rows[described[1][0]], right[source]))
        chance = np.random.default_rng(seed)
        labels, seen = random_labels(pairs, (train, test), classes[task], chance)
        indices = own[task, seed][1][0]
        known = seen[indices]
        control = _is_right(own[task, seed], labels, learned.rows, seed)[known]
        rows, better = asked.rows[indices][known], right[maps][known] - control
        answers += [(task, CONTROL, seed, rows, control), (task, SELECTIVITY, seed, rows, better)]
    table = _table(answers, (maps, DISTANCE, RANDOM, CONTROL, SELECTIVITY), classes, len(test))
    settings = {
        "model": type(model).__name__,
        "maps": maps,
        "relations": names,
        "seeds": list(seeds),
        "sentences": [len(train), len(test)],
        "pairs": {task: [len(part) for part in pairs] for (task, _), pairs in drawn.items()},
    }
    figures = {"attention": _draw(table)}
    return Findings("attention", CAPTION, table, settings, figures, ("task", "told from"))


Described: TypeAlias = tuple[Integers, Floats]  # indices of pairs that were read, [n, 2 · C]


def _describe(
    reader: WordReader,
    parts: Sequence[Sequence[Sentence]],
    drawn: dict[tuple[str, int], list[Pairs]],
) -> dict[tuple[str, int], list[Described]]:
    """Describe pairs by what all heads give both ways; sentences without any are not read."""
    found: dict[tuple[str, int], list[Described]] = {place: [] for place in drawn}
    for side, sentences in enumerate(parts):
        own = [pairs[side] for pairs in drawn.values()]
        table = np.concatenate([np.column_stack([pairs.rows, pairs.words]) for pairs in own])
        known, indices = np.unique(table, axis=0, return_inverse=True)
        used, counts = np.unique(known[:, 0], return_counts=True)
        words = np.split(known[:, 1:], np.cumsum(counts)[:-1])

        def both_ways(row: int, _: Floats, maps: Floats, words: Any = words) -> Floats:
            one, other = words[row].T
            seen = np.nan_to_num(maps, neginf=0.0)  # of what a decoder never looks at
            return np.stack([seen[:, one, other].T, seen[:, other, one].T])

        rows = reader.read(
            [sentences[row].words for row in used],
            both_ways,
            counts.tolist(),
            (2, len(reader.heads)),
            known.tolist(),
        )
        values = np.concatenate(list(rows.values), axis=1)
        cuts = np.split(indices.ravel(), np.cumsum([len(pairs) for pairs in own])[:-1])
        for place, pairs, part in zip(drawn, own, cuts, strict=True):
            kept = np.flatnonzero(~np.isin(pairs.rows, used[list(rows.left_out)]))
            found[place].append((kept, values[part[kept]]))
    return found


def _one_hot_distances(pairs: Pairs) -> Floats:
    apart = np.minimum(pairs.words[:, 1] - pairs.words[:, 0], FARTHEST)
    found: Floats = np.eye(FARTHEST + 1, dtype=np.float32)[apart]
    return found


def _is_right(
    described: Sequence[Described], labels: Sequence[Integers], rows: Integers, seed: int
) -> Floats:
    """Learn labels of pairs, those of one sentence apart from others, and guess those of more."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, GroupShuffleSplit
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    (learned, known), (asked, values) = described
    groups = rows[learned]
    if (sentences := len(np.unique(groups))) < LEAST:
        raise ValueError(f"train must give pairs of {LEAST} sentences at least, got {sentences}")
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, tol=1e-3))
    split = GroupShuffleSplit(1, test_size=0.2, random_state=seed)
    search = GridSearchCV(linear, {"logisticregression__C": PENALTIES}, cv=split)
    search.fit(known, labels[0][learned], groups=groups)
    found: Floats = (search.predict(values) == labels[1][asked]).astype(float)
    return found


def _table(
    answers: Sequence[tuple[str, str, int, Integers, Floats]],
    sources: Sequence[str],
    classes: dict[str, int],
    sentences: int,
) -> pd.DataFrame:
    """A row for each task and source: the share of all seeds, that of the worst and the best."""
    import pandas as pd

    found = []
    for task, number in classes.items():
        for source in sources:
            own = [entry[2:] for entry in answers if entry[:2] == (task, source)]
            rows, right = (np.concatenate([entry[part] for entry in own]) for part in (1, 2))
            hits, totals = (np.bincount(rows, one, sentences) for one in (right, None))
            share, low, high = map(float, resampled_ratio(hits, totals))
            seeds = [values.mean() if len(values) else np.nan for *_, values in own]
            found.append(
                {
                    "task": task,
                    "told from": source,
                    "pairs": len(rows),
                    "accuracy": share,
                    "low": low,
                    "high": high,
                    "least": min(seeds),
                    "most": max(seeds),
                    "chance": 0.0 if source == SELECTIVITY else 1 / number,
                }
            )
    return pd.DataFrame(found)


def _draw(table: pd.DataFrame) -> Figure:
    """Draw how well each task is done, whatever it is told from."""
    figure = new_figure(9.2, 2.7)
    for axis, (task, own) in zip(figure.subplots(1, 2), table.groupby("task"), strict=True):
        draw_rows(axis, {"": (own, "accuracy")}, own["told from"].tolist())
        for row, chance in enumerate(own["chance"]):
            axis.plot([chance] * 2, [row - 0.4, row + 0.4], color=QUIET, ls=":", lw=1.2)
        axis.set_title(task, fontsize=10)
        axis.set_xlabel("accuracy (dotted: chance)", fontsize=9)
        axis.set_xlim(min(0.0, own["low"].min() - 0.02), 1.0)
    return figure
