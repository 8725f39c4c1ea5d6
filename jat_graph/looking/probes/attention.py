"""The attention probe: what the heads give two words tells of their relation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from jat_graph.core.extras import import_extra
from jat_graph.core.numbers import check_indices, check_integer
from jat_graph.core.progress import track_progress
from jat_graph.looking.data.reading import ATTENTION
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.findings import (
    QUIET,
    Figure,
    Findings,
    Floats,
    draw_rows,
    resampled_mean,
    with_ends,
)
from jat_graph.looking.probes.treebank import Sentence, check_sentences, frequent_relations
from jat_graph.looking.probes.words import WordReader, random_weights, read_rows
from jat_graph.looking.viz.figures import PAGE, new_figure

JOINED, WHICH = "is there a relation?", "which relation?"
DISTANCE, RANDOM = "word distance", "random weights"
CONTROL, SELECTIVITY = "control task", "selectivity"
FARTHEST = 20  # words, from which on the distance is one and the same
PENALTIES = (0.003, 0.03, 0.3, 3.0)  # C of scikit-learn: large is free
LEAST = 10  # sentences, of which a fifth can be spared to choose among them

CAPTION = (
    "Accuracy of a linear model that reads the attention of all heads between two words, and tells "
    "whether one is the head of the other, or which relation they have; classes are balanced. A "
    "probe means something if it is better than the word distance and random weights. In the "
    "control task each two word types have a random label, and are tested if they occurred "
    "together in training; selectivity is the accuracy on the same pairs, less that of the control "
    "task. Intervals are of 95 % over sentences; least and most are those of the seeds."
)


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
        examples: Most pairs of ``train``, and of ``test``, for each task and seed. (default: 6000)
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
    drawn = []
    for seed in seeds:
        for task in (JOINED, WHICH):
            chance = np.random.default_rng(seed)
            for part, sentences in enumerate(parts):
                if task == JOINED:
                    own = joined_or_not(sentences, examples, chance)
                else:
                    own = of_each_relation(sentences, names, examples, chance)
                drawn.append(own.assign(task=task, seed=seed, part=part))
    pairs = pd.concat(drawn, ignore_index=True)

    values = describe_pairs(reader, parts, pairs)
    random = np.empty_like(values)
    for seed, own in pairs.groupby("seed"):
        twin = replace(reader, model=random_weights(reader.model, seed, jumping=True))
        random[own.index] = describe_pairs(twin, parts, own)
    apart = np.minimum(pairs["other"] - pairs["one"], FARTHEST)
    told = {maps: values, RANDOM: random, DISTANCE: np.eye(FARTHEST + 1, dtype=np.float32)[apart]}

    answers, sizes = [], {}
    tasks = pairs.groupby(["task", "seed"], sort=False)
    for (task, seed), own in track_progress(tasks, "Fitting probes", tasks.ngroups):
        right = {name: _is_right(own, one[own.index], seed) for name, one in told.items()}
        sizes[task] = np.bincount(own["part"]).tolist()
        number = 2 if task == JOINED else len(names)
        # The control task: a label for every two word types.
        known, indices = np.unique(own["types"].tolist(), return_inverse=True)
        labels = np.random.default_rng(seed).integers(number, size=len(known))
        control = own.assign(label=labels[indices])
        met = own["types"].isin(own.loc[own["part"] == 0, "types"])
        right[CONTROL] = _is_right(control, values[own.index], seed)[met]
        right[SELECTIVITY] = right[maps][met] - right[CONTROL]
        for name, one in right.items():
            columns = {"task": task, "told from": name, "seed": seed, "row": own["row"]}
            answers.append(pd.DataFrame(columns | {"right": one}).dropna())
    table = _table(pd.concat(answers), (maps, DISTANCE, RANDOM, CONTROL, SELECTIVITY), len(test))
    table["chance"] = np.where(table["task"] == JOINED, 1 / 2, 1 / len(names))
    table.loc[table["told from"] == SELECTIVITY, "chance"] = 0.0
    settings = {
        "model": type(reader.model).__name__,
        "maps": maps,
        "relations": names,
        "seeds": list(seeds),
        "sentences": [len(train), len(test)],
        "pairs": sizes,
    }
    figures = {"attention": _draw(table)}
    return Findings("attention", CAPTION, table, settings, figures, ("task", "told from"))


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
    return _pairs(found, sentences)


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
    drawn = (own[index] for own in groups.values() for index in chance.permutation(len(own))[:size])
    return _pairs(drawn, sentences)


def _pairs(found: Iterable[tuple[int, ...]], sentences: Sequence[Sentence]) -> pd.DataFrame:
    """Pairs of words, the earlier first so that the order does not tell which is the head."""
    rows = []
    for row, one, other, label in sorted(found):
        words = sentences[row].words
        rows.append((row, one, other, label, f"{words[one]}\t{words[other]}".lower()))
    return pd.DataFrame(rows, columns=["row", "one", "other", "label", "types"])


def describe_pairs(
    reader: WordReader, parts: Sequence[Sequence[Sentence]], pairs: pd.DataFrame
) -> Floats:  # [N, 2 · C]
    """Describe pairs by what all heads give both ways; NaN where the model cannot read them."""
    found = np.empty((len(pairs), 2 * len(reader.heads)), np.float32)
    for part, sentences in enumerate(parts):
        own = (pairs["part"] == part).to_numpy()
        positions = pairs.loc[own, ["row", "one", "other"]].to_numpy()
        known, indices = np.unique(positions, axis=0, return_inverse=True)
        used, counts = np.unique(known[:, 0], return_counts=True)  # sentences without any: not read
        words = np.split(known[:, 1:], np.cumsum(counts)[:-1])

        def both_ways(row: int, _: Floats, maps: Floats, words: Any = words) -> Floats:
            one, other = words[row].T
            seen = np.nan_to_num(maps, neginf=0.0)  # of what a decoder never looks at
            return np.stack([seen[:, one, other].T, seen[:, other, one].T])

        texts, shape = [sentences[row].words for row in used], (2, len(reader.heads))
        rows = read_rows(reader, texts, both_ways, counts.tolist(), shape, known.tolist())
        values = np.concatenate(list(rows.values), axis=1)[indices.ravel()]
        values[np.isin(positions[:, 0], used[list(rows.left_out)])] = np.nan
        found[own] = values
    return found


def _is_right(pairs: pd.DataFrame, values: Floats, seed: int) -> pd.Series[float]:
    """Learn the labels of the first part, sentence by sentence, and guess those of the other."""
    names = ("linear_model", "model_selection", "pipeline", "preprocessing")
    models, selection, pipeline, scaling = (import_extra(f"sklearn.{name}") for name in names)
    read = ~np.isnan(values).any(1)
    learned, asked = (read & (pairs["part"] == part) for part in (0, 1))
    groups, labels = pairs.loc[learned, "row"], pairs["label"]
    if (sentences := groups.nunique()) < LEAST:
        raise ValueError(f"train must give pairs of {LEAST} sentences at least, got {sentences}")
    logistic = models.LogisticRegression(max_iter=2000, tol=1e-3)
    linear = pipeline.make_pipeline(scaling.StandardScaler(), logistic)
    split = selection.GroupShuffleSplit(1, test_size=0.2, random_state=seed)
    search = selection.GridSearchCV(linear, {"logisticregression__C": PENALTIES}, cv=split)
    search.fit(values[learned], labels[learned], groups=groups)
    return (search.predict(values[asked]) == labels[asked]).astype(float)


def _table(answers: pd.DataFrame, sources: Sequence[str], sentences: int) -> pd.DataFrame:
    """A row for each task and source: the share of all seeds, that of the worst and the best."""
    found = []
    for task in (JOINED, WHICH):
        for source in sources:
            own = answers[(answers["task"] == task) & (answers["told from"] == source)]
            row = {"task": task, "told from": source, "pairs": len(own)}
            row |= with_ends("accuracy", resampled_mean(own["right"], own["row"], sentences), "")
            seeds = own.groupby("seed")["right"].mean()
            found.append(row | {"least": seeds.min(), "most": seeds.max()})
    return pd.DataFrame(found)


def _draw(table: pd.DataFrame) -> Figure:
    """Draw how well each task is done, whatever it is told from."""
    figure = new_figure(PAGE, 2.4)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (task, own) in zip(axes, table.groupby("task"), strict=True):
        label = "accuracy (dotted: chance)"
        draw_rows(axis, {"": (own, "accuracy")}, own["told from"].tolist(), label)
        for row, chance in enumerate(own["chance"]):
            axis.plot([chance] * 2, [row - 0.4, row + 0.4], color=QUIET, ls=":", lw=1.2)
        axis.set_title(task, fontsize=9)
        axis.set_xlim(min(0.0, own["low"].min() - 0.02), 1.0)
    return figure
