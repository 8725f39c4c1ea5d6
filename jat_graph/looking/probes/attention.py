"""The attention probe: what the heads give two words tells of their relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from jat_graph.core.extras import import_extra
from jat_graph.core.numbers import check_indices, check_integer
from jat_graph.core.progress import track_progress
from jat_graph.looking.data.reading import ATTENTION
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.drawing import draw_rows
from jat_graph.looking.probes.findings import Findings, resampled_mean, with_ends
from jat_graph.looking.probes.treebank import EDGE, Sentence, frequent_relations, related_pairs
from jat_graph.looking.probes.words import (
    WordReader,
    check_maps,
    random_weights,
    read_pairs,
    readable,
)

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
    back. Logistic regression, its L2 penalty chosen on a fifth of the sentences, tells pairs with a
    relation from as many without, and relations apart, of as many pairs each. Beside it stand the
    word distance, the model with random weights, a control task with random labels for every two
    word types, and the selectivity: how much better the task is done than the control task, on
    pairs whose types came together in training.

    Args:
        reader: A model, and where what it gives is kept.
        train, test: Sentences to learn from, and to be asked about.
        maps: What describes pairs: ``"attention"``, or of jump heads ``"graph"``. (default:
            ``"attention"``)
        relations: How many of the most frequent relations are told apart. (default: 30)
        examples: Most pairs of ``train``, and of ``test``, for each task and seed. (default: 6000)
        seeds: Each draws its own pairs, labels and weights. (default: (0, 1, 2))

    Returns:
        The accuracies of all seeds, with 95 % intervals over sentences; of the worst and the best.

    Raises:
        ValueError: If an argument does not fit the model or the sentences.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 3; Hewitt and
        Liang, *Designing and Interpreting Probes with Control Tasks*, 2019.
    """
    parts = readable(reader, train=train, test=test)
    check_integer("relations", relations, least=2)
    check_integer("examples", examples, least=2)
    seeds = check_indices("seeds", seeds)
    check_maps(reader, maps)
    learned, asked = map(frequent_relations, parts)
    names = [name for name in learned if name in asked][:relations]
    if len(names) < 2:
        raise ValueError(f"train and test must share two relations at least, got {names}")
    drawn = []
    for (part, sentences), seed in product(enumerate(parts), seeds):
        own = draw_pairs(sentences, names, examples, np.random.default_rng((seed, part)))
        drawn.append(own.assign(seed=seed, part=part))
    pairs = pd.concat(drawn, ignore_index=True)

    values = describe_pairs(reader, parts, pairs, maps)
    twins = []
    for seed, own in pairs.groupby("seed"):
        twin = replace(reader, model=random_weights(reader.model, seed, jumping=True))
        twins.append(describe_pairs(twin, parts, own, maps))
    apart = np.minimum(pairs["other"] - pairs["one"], FARTHEST)
    told = {maps: values, DISTANCE: pd.get_dummies(apart, dtype=float), RANDOM: pd.concat(twins)}

    answers = []
    sizes = {}
    tasks = pairs.groupby(["task", "seed"], sort=False)
    for (task, seed), own in track_progress(tasks, "Fitting probes", tasks.ngroups):
        right = {name: _is_right(own, one.loc[own.index], seed) for name, one in told.items()}
        sizes[task] = np.bincount(own["part"]).tolist()
        # The control task: a label for every two word types.
        known, indices = np.unique(own["types"].tolist(), return_inverse=True)
        labels = np.random.default_rng(seed).integers(own["label"].nunique(), size=len(known))
        control = own.assign(label=labels[indices])
        met = own["types"].isin(own.loc[own["part"] == 0, "types"])
        right[CONTROL] = _is_right(control, values.loc[own.index], seed)[met]
        right[SELECTIVITY] = right[maps][met] - right[CONTROL]
        for name, one in right.items():
            columns = {"task": task, "told from": name, "seed": seed, "row": own["row"]}
            answers.append(pd.DataFrame(columns | {"right": one}).dropna())  # of the pairs of test
    rows = []
    every = pd.concat(answers)
    for task, by_chance in ((JOINED, 1 / 2), (WHICH, 1 / len(names))):
        for source in (*told, CONTROL, SELECTIVITY):
            own = every[(every["task"] == task) & (every["told from"] == source)]
            row = {"task": task, "told from": source, "pairs": len(own)}
            row |= with_ends(
                "accuracy", resampled_mean(own["right"], own["row"], len(parts[1])), ""
            )
            of_seeds = own.groupby("seed")["right"].mean()
            row |= {"least": of_seeds.min(), "most": of_seeds.max()}
            rows.append(row | {"chance": 0.0 if source == SELECTIVITY else by_chance})
    table = pd.DataFrame(rows)
    settings: dict[str, Any] = {"model": type(reader.model).__name__, "maps": maps}
    settings |= {"relations": names, "pairs": sizes}
    settings |= {"seeds": list(seeds), "sentences": list(map(len, parts))}
    series = {name: (table, name) for name in ("accuracy", "chance")}
    label = "share of pairs that are told right"
    figures = {"attention": draw_rows(series, ("task", "told from"), label)}
    return Findings("attention", CAPTION, table, settings, figures)


def draw_pairs(
    sentences: Sequence[Sentence], relations: Sequence[str], most: int, chance: np.random.Generator
) -> pd.DataFrame:
    """Draw pairs of words for both tasks, as many of each label, the earlier word first."""
    pairs = related_pairs(sentences).sample(frac=1, random_state=chance)
    is_edge = pairs[EDGE]
    row = pairs["row"]
    # Pairs with a relation, and as many of the same sentences without one.
    place = pairs.groupby(["row", EDGE]).cumcount()
    edges = pairs[is_edge & (place < row.map((~is_edge).groupby(row).sum()))][: most // 2]
    if edges.empty:
        raise ValueError("sentences must have words without a relation, got none with four words")
    others = pairs[~is_edge & (place < row.map(edges["row"].value_counts()))]
    groups = pairs[is_edge & pairs["relation"].isin(relations)].groupby("relation")
    which = groups.head(min(max(1, most // len(relations)), groups.size().min()))
    labels = which["relation"].map(relations.index)
    tasks = edges.assign(task=JOINED, label=1), others.assign(task=JOINED, label=0)
    found = pd.concat([*tasks, which.assign(task=WHICH, label=labels)])
    positions = found[["row", "one", "other"]].to_numpy().tolist()
    pairs_of_words = ([sentences[row].words[word] for word in both] for row, *both in positions)
    return found.assign(types=["\t".join(both).lower() for both in pairs_of_words])


def describe_pairs(
    reader: WordReader, parts: Sequence[Sequence[Sentence]], pairs: pd.DataFrame, maps: str
) -> pd.DataFrame:  # [N, 2 · C]
    """Describe pairs by what all heads give both ways."""
    found = []
    for part, sentences in enumerate(parts):
        own = pairs[pairs["part"] == part].sort_values("row", kind="stable")
        values = np.concatenate(read_pairs(reader, sentences, own, maps), axis=1)
        found.append(pd.DataFrame(values, index=own.index))
    return pd.concat(found)


def _is_right(pairs: pd.DataFrame, values: pd.DataFrame, seed: int) -> pd.Series[float]:
    """Learn the labels of the first part, sentence by sentence, and guess those of the other."""
    names = ("linear_model", "model_selection", "pipeline", "preprocessing")
    models, selection, pipeline, scaling = (import_extra(f"sklearn.{name}") for name in names)
    learned, asked = (pairs["part"] == part for part in (0, 1))
    groups = pairs.loc[learned, "row"]
    labels = pairs["label"]
    if (sentences := groups.nunique()) < LEAST:
        raise ValueError(f"train must give pairs of {LEAST} sentences at least, got {sentences}")
    logistic = models.LogisticRegression(max_iter=2000, tol=1e-3)
    linear = pipeline.make_pipeline(scaling.StandardScaler(), logistic)
    split = selection.GroupShuffleSplit(1, test_size=0.2, random_state=seed)
    search = selection.GridSearchCV(linear, {"logisticregression__C": PENALTIES}, cv=split)
    search.fit(values[learned], labels[learned], groups=groups)
    return (search.predict(values[asked]) == labels[asked]).astype(float)
