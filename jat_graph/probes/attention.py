"""The attention probe: what the heads give two words tells of their relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from jat_graph.checks.numbers import check_indices, check_integer
from jat_graph.data.reading import ATTENTION
from jat_graph.probes.findings import Findings, Floats, Integers, resampled_ratio
from jat_graph.probes.pictures import QUIET, draw_rows
from jat_graph.probes.treebank import Sentence, check_sentences, frequent_relations
from jat_graph.probes.words import WordReader, random_weights
from jat_graph.progress import track_progress
from jat_graph.viz.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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

Drawing: TypeAlias = dict[tuple[str, int], list[pd.DataFrame]]  # of a task and a seed: both parts
# Of pairs that were read: their indices, and what describes them, [n, 2 · C].
Described: TypeAlias = tuple[Integers, Floats]


def attention_probe(
    reader: WordReader,
    train: Sequence[Sentence],
    test: Sequence[Sentence],
    *,
    maps: str = ATTENTION,
    relations: int = 30,
    examples: int = 6000,
    seeds: Sequence[int] = (0, 1, 2),
) -> Findings:
    """Tell from what all heads give two words whether they have a relation, and which.

    A pair is described by what each of C heads gives from the earlier word to the later one and
    back, 2 · C numbers. Logistic regression on standardised numbers, its L2 penalty chosen on a
    fifth of the sentences, tells pairs with a relation from as many without, and relations apart,
    of as many pairs each. Beside it stand the word distance alone, the model with random weights, a
    control task with random labels for every two word types, and the selectivity: how much better
    the task is done than the control task, on pairs whose types came together in training.

    Args:
        reader: A model, and where what it gives to the pairs is kept.
        train: Sentences to learn from.
        test: Sentences to be asked about.
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

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 3; Hewitt and
        Liang, *Designing and Interpreting Probes with Control Tasks*, 2019.
    """
    check_sentences(train=train, test=test)
    check_integer("relations", relations, least=2)
    check_integer("examples", examples, least=2)
    seeds, parts, reader = check_indices("seeds", seeds), (train, test), replace(reader, maps=maps)
    there = frequent_relations(test)
    names = [name for name in frequent_relations(train) if name in there][:relations]
    if len(names) < 2:
        raise ValueError(f"train and test must share two relations at least, got {names}")
    draws: dict[str, Callable[[Sequence[Sentence], np.random.Generator], pd.DataFrame]] = {
        JOINED: lambda part, chance: joined_or_not(part, examples, chance),
        WHICH: lambda part, chance: of_each_relation(part, names, examples, chance),
    }
    drawn: Drawing = {}
    for seed in seeds:
        for task, draw in draws.items():
            chance = np.random.default_rng(seed)
            drawn[task, seed] = [draw(part, chance) for part in parts]
    own = _describe(reader, parts, drawn)
    random: dict[tuple[str, int], list[Described]] = {}
    for seed in seeds:
        twin = replace(reader, model=random_weights(reader.model, seed, jumping=True))
        some = {place: pairs for place, pairs in drawn.items() if place[1] == seed}
        random |= _describe(twin, parts, some)

    answers = []  # of each pair that was asked
    for (task, seed), pairs in track_progress(drawn.items(), "Fitting probes", len(drawn)):
        apart = [np.minimum(part["other"] - part["one"], FARTHEST) for part in pairs]
        hot = np.eye(FARTHEST + 1, dtype=np.float32)
        given = {
            maps: own[task, seed],
            RANDOM: random[task, seed],
            DISTANCE: [(np.arange(len(part)), hot[part]) for part in apart],
        }
        rows, labels = ([part[name].to_numpy() for part in pairs] for name in ("row", "label"))
        right = {name: _is_right(part, labels, rows[0], seed) for name, part in given.items()}
        at = {name: part[1][0] for name, part in given.items()}
        chance, number = np.random.default_rng(seed), 2 if task == JOINED else len(names)
        labels, seen = random_labels(pairs, parts, number, chance)
        known = seen[at[maps]]
        right[CONTROL] = _is_right(given[maps], labels, rows[0], seed)[known]
        right[SELECTIVITY] = right[maps][known] - right[CONTROL]
        at |= dict.fromkeys((CONTROL, SELECTIVITY), at[maps][known])
        for name, one in right.items():
            columns = {"task": task, "told from": name, "seed": seed, "row": rows[1][at[name]]}
            answers.append(pd.DataFrame(columns | {"right": one}))
    table = _table(pd.concat(answers), maps, {JOINED: 2, WHICH: len(names)}, len(test))
    settings = {
        "model": type(reader.model).__name__,
        "maps": maps,
        "relations": names,
        "seeds": list(seeds),
        "sentences": [len(train), len(test)],
        "pairs": {task: [len(part) for part in pairs] for (task, _), pairs in drawn.items()},
    }
    figures = {"attention": _draw(table)}
    return Findings("attention", CAPTION, table, settings, figures, ("task", "told from"))


def _pairs(found: Sequence[tuple[int, ...]]) -> pd.DataFrame:
    """Pairs of words, the earlier first so that the order does not tell which is the head."""
    table = np.array(sorted(found), dtype=np.int64).reshape(-1, 4)
    return pd.DataFrame(table, columns=["row", "one", "other", "label"])


def joined_or_not(
    sentences: Sequence[Sentence], most: int, chance: np.random.Generator
) -> pd.DataFrame:
    """Draw pairs with a relation, label 1, and as many of the same sentences without one, 0."""
    edges: list[tuple[int, int, int]] = []
    for row, sentence in enumerate(sentences):
        own, length = sentence.edges, len(sentence)
        others = length * (length - 1) // 2 - len(own)
        if len(own) > others:
            own = [own[index] for index in chance.permutation(len(own))[:others]]
        edges += [(row, min(edge), max(edge)) for edge in own]
    if not edges:
        raise ValueError("sentences must have words without a relation, got none with four words")
    chosen = [edges[index] for index in chance.permutation(len(edges))[: most // 2]]
    found: list[tuple[int, ...]] = [(*pair, 1) for pair in chosen]
    counts = np.bincount([row for row, *_ in chosen], minlength=len(sentences))
    for row in np.flatnonzero(counts).tolist():
        related = {(min(edge), max(edge)) for edge in sentences[row].edges}
        pairs = combinations(range(len(sentences[row])), 2)
        unrelated = [pair for pair in pairs if pair not in related]
        drawn = chance.choice(len(unrelated), counts[row], replace=False)
        found += [(row, *unrelated[index], 0) for index in drawn]
    return _pairs(found)


def of_each_relation(
    sentences: Sequence[Sentence], relations: Sequence[str], most: int, chance: np.random.Generator
) -> pd.DataFrame:
    """Draw as many pairs of each relation, whose label is its index among them."""
    groups: dict[str, list[tuple[int, ...]]] = {name: [] for name in relations}
    for row, sentence in enumerate(sentences):
        for word, head in sentence.edges:
            if (name := sentence.relations[word]) in groups:
                pair = row, min(word, head), max(word, head), relations.index(name)
                groups[name].append(pair)
    size = min(max(1, most // len(relations)), *map(len, groups.values()))
    return _pairs(
        [own[index] for own in groups.values() for index in chance.permutation(len(own))[:size]]
    )


def random_labels(
    pairs: Sequence[pd.DataFrame],
    parts: Sequence[Sequence[Sentence]],
    number: int,
    chance: np.random.Generator,
) -> tuple[list[Integers], Any]:
    """Draw a label for every two word types, the control task.

    Also tell which pairs of the last part the first one has, too.
    """
    types = [
        [
            f"{sentences[own.row].words[own.one]}\t{sentences[own.row].words[own.other]}".lower()
            for own in some.itertuples()
        ]
        for some, sentences in zip(pairs, parts, strict=True)
    ]
    known, indices = np.unique(np.concatenate(types), return_inverse=True)
    labels = chance.integers(number, size=len(known))[indices]
    return np.split(labels, [len(pairs[0])]), np.isin(types[-1], types[0])


def _describe(
    reader: WordReader, parts: Sequence[Sequence[Sentence]], drawn: Drawing
) -> dict[tuple[str, int], list[Described]]:
    """Describe pairs by what all heads give both ways; sentences without any are not read."""
    found: dict[tuple[str, int], list[Described]] = {place: [] for place in drawn}
    for side, sentences in enumerate(parts):
        own = [pairs[side] for pairs in drawn.values()]
        table = pd.concat(own)[["row", "one", "other"]].to_numpy()
        known, indices = np.unique(table, axis=0, return_inverse=True)
        used, counts = np.unique(known[:, 0], return_counts=True)
        words = np.split(known[:, 1:], np.cumsum(counts)[:-1])

        def both_ways(row: int, _: Floats, maps: Floats, words: Any = words) -> Floats:
            one, other = words[row].T
            seen = np.nan_to_num(maps, neginf=0.0)  # of what a decoder never looks at
            return np.stack([seen[:, one, other].T, seen[:, other, one].T])

        texts, shape = [sentences[row].words for row in used], (2, len(reader.heads))
        rows = reader.read_rows(texts, both_ways, counts.tolist(), shape, known.tolist())
        values = np.concatenate(list(rows.values), axis=1)
        cuts = np.split(indices.ravel(), np.cumsum([len(pairs) for pairs in own])[:-1])
        for place, pairs, part in zip(drawn, own, cuts, strict=True):
            kept = np.flatnonzero(~np.isin(pairs["row"], used[list(rows.left_out)]))
            found[place].append((kept, values[part[kept]]))
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
    answers: pd.DataFrame, maps: str, classes: Mapping[str, int], sentences: int
) -> pd.DataFrame:
    """A row for each task and source: the share of all seeds, that of the worst and the best."""
    found, groups = [], dict(list(answers.groupby(["task", "told from"])))
    for task, number in classes.items():
        for source in (maps, DISTANCE, RANDOM, CONTROL, SELECTIVITY):
            own = groups.get((task, source), answers[:0])
            hits, totals = (np.bincount(own["row"], one, sentences) for one in (own["right"], None))
            share, low, high = map(float, resampled_ratio(hits, totals))
            row = {"task": task, "told from": source, "pairs": len(own), "accuracy": share}
            seeds = own.groupby("seed")["right"].mean()
            row |= {"low": low, "high": high, "least": seeds.min(), "most": seeds.max()}
            found.append(row | {"chance": 0.0 if source == SELECTIVITY else 1 / number})
    return pd.DataFrame(found)


def _draw(table: pd.DataFrame) -> Figure:
    """Draw how well each task is done, whatever it is told from."""
    figure = new_figure(9.2, 2.7)
    for axis, (task, own) in zip(figure.subplots(1, 2), table.groupby("task"), strict=True):
        label = "accuracy (dotted: chance)"
        draw_rows(axis, {"": (own, "accuracy")}, own["told from"].tolist(), label)
        for row, chance in enumerate(own["chance"]):
            axis.plot([chance] * 2, [row - 0.4, row + 0.4], color=QUIET, ls=":", lw=1.2)
        axis.set_title(task, fontsize=10)
        axis.set_xlim(min(0.0, own["low"].min() - 0.02), 1.0)
    return figure
