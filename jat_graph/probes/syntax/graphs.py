"""Jump graphs against the tree: which relations the pairs have that a head joins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.checks.numbers import check_choice, check_inside, check_integer
from jat_graph.data.reading import Head
from jat_graph.probes.findings import Findings
from jat_graph.probes.intervals import resampled_ratio
from jat_graph.probes.storage import stream_rows
from jat_graph.probes.syntax.heads import Halves
from jat_graph.probes.syntax.kinds import EDGE, SAME_TAG, SIBLINGS, PairKinds
from jat_graph.probes.syntax.pictures import draw_head_grids, draw_ratios
from jat_graph.probes.syntax.reading import Floats, check_sentences, describe, words_of
from jat_graph.probes.treebank import Sentence
from jat_graph.probes.words import ATTENTION, GRAPH, WordReader, WordReading

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

RELATIONS, HEADS = EACH = ("relations", "heads")


def graphs_and_trees(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sentence],
    folder: str | Path,
    *,
    maps: str = GRAPH,
    each: str = RELATIONS,
    density: float | None = 0.05,
    least: int = 50,
    seed: int = 0,
    batch_size: int = 32,
) -> Findings:
    r"""Say how much more often than chance the pairs that heads join are related in the tree.

    A pair of words weighs the mean of what a head's graph mixes of each into the other (of a
    decoder there is only one way), and is joined if it is among the heaviest of all sentences'
    pairs, by head: as many as the density says, more where several weigh as much as the last, none
    that weighs nothing. Related are head and dependent, siblings (words of one head), words of one
    part of speech, and head and dependent of each relation.

    With :math:`J_{sh}` joined pairs of head h among the :math:`A_s` pairs of sentence s, of which
    :math:`A_{sr}` are related, chance gives :math:`E = \sum_s J_{sh} A_{sr} / A_s` related ones:
    joined pairs placed at random in their own sentence. The ratio is that of the related joined
    pairs to E. Words near each other are related more often, and joined more often; the matched
    ratio is to the same sum over the pairs of one sentence *and* one distance in words. It is 1
    where a head knows of nothing but distance.

    Memory: about 12 bytes for each pair of words and head, a quarter of a gigabyte for the 254,000
    pairs of EWT's development set and 72 heads.

    Args:
        model: A model with jump heads, or with any for ``maps="attention"``.
        tokenizer: Its tokenizer, a fast one.
        sentences: Sentences with their trees.
        folder: Where what the heads join is kept, to be found by the next call.
        maps: ``"graph"``, hard votes or the walk over stones; or ``"attention"``, to compare.
            (default: ``"graph"``)
        each: What a row of the table is: ``"relations"``, over all heads together and of the best
            one; or ``"heads"``, of each layer and head. (default: ``"relations"``)
        density: Share of pairs that each head joins; None for all pairs that weigh anything.
            (default: 0.05)
        least: Relations with fewer pairs are left out. (default: 50)
        seed: Of the half of the sentences that the best head is chosen on. (default: 0)
        batch_size: Most sentences that the model reads at a time. (default: 32)

    Returns:
        The ratios with 95 % intervals over sentences, and the density that came of it; the best
        head of a relation, the farthest above chance, was chosen on one half of the sentences and
        scored on the other. An interval is missing where a draw of sentences may have nothing to
        count.

    Raises:
        ValueError: If an argument does not fit the model or the sentences.
        OSError: If the folder cannot be written.

    Reference:
        Zhou et al. 2022, Eq. 2 and 3, for the graph; Coenen et al., *Visualizing and Measuring the
        Geometry of BERT*, NeurIPS 2019, for the question.
    """
    check_sentences("sentences", sentences)
    check_choice("maps", maps, (GRAPH, ATTENTION))
    check_choice("each", each, EACH)
    check_integer("least", least, least=1)
    check_integer("seed", seed, least=0)
    if density is not None:
        check_inside("density", density, 0.0, 1.0)
    reader = WordReader(model, tokenizer, maps, batch_size)
    weights, read = pair_weights(folder, reader, sentences)
    kinds = PairKinds.of([sentences[row] for row in read], least)
    joined = join(weights, density)
    counts = Counts(kinds, joined)
    settings = describe(model, maps) | {
        "sentences": len(read),
        "density": density,
        "least": least,
        "seed": seed,
    }
    return _findings(counts, each, reader.heads, Halves.of(len(read), seed), settings)


def pair_weights(
    folder: str | Path, reader: WordReader, sentences: Sequence[Sentence]
) -> tuple[Floats, list[int]]:  # [N, C]
    """Return what each head gives to the pairs i < k of all sentences read, and these sentences."""

    def rows_of(reading: WordReading) -> Floats:  # [1, n, C]
        assert reading.maps is not None
        one, other = np.triu_indices(reading.maps.size(-1), 1)
        maps = reading.maps.numpy()
        found: Floats = ((maps + maps.swapaxes(1, 2)) / 2)[None, :, one, other].swapaxes(1, 2)
        return found

    counts = [len(sentence) * (len(sentence) - 1) // 2 for sentence in sentences]
    shape = 1, len(reader.heads)
    settings = {"rows": "all pairs"}
    rows = stream_rows(folder, reader, words_of(sentences), rows_of, counts, shape, settings)
    read = [row for row in range(len(sentences)) if row not in rows.left_out]
    kept = np.repeat(np.isin(np.arange(len(sentences)), read), counts)
    values: Floats = rows.values[0]
    return (values if kept.all() else values[kept]), read


def join(weights: Floats, density: float | None) -> Floats:  # [N, C] -> [N, C] of 0 and 1
    """Join the heaviest pairs of each head, or all that weigh anything."""
    joined = weights > 0
    if density is not None:
        rank = max(1, round(density * len(weights)))
        least = np.partition(weights, len(weights) - rank, axis=0)[len(weights) - rank]
        joined &= weights >= least
    return joined.astype(np.float32)


class Counts:
    """How many pairs of a kind are joined, and how many would be by chance.

    Args:
        kinds: Which pairs are of which kind.
        joined: Which pairs each head joins, ``[N, C]``.
    """

    def __init__(self, kinds: PairKinds, joined: Floats) -> None:
        self.kinds = kinds
        self.density = joined.mean(0)  # [C]
        self._joined = joined
        self._of_sentences = kinds.by_sentence @ joined  # [S, C]
        self._of_cells = kinds.by_cell @ joined  # [cells, C]

    def of(self, name: str) -> Any:  # [3, S, C]
        """Joined pairs of a kind, what chance gives, and what it gives among equal distances."""
        kinds = self.kinds
        places = kinds.pairs[name]
        joined = kinds.by_sentence[:, places] @ self._joined[places]
        chance = self._of_sentences * kinds.share(kinds.by_sentence, places)
        matched = kinds.cells_by_sentence @ (self._of_cells * kinds.share(kinds.by_cell, places))
        return np.stack([joined, chance, matched])


def _findings(
    counts: Counts, each: str, heads: Sequence[Head], halves: Halves, settings: dict[str, Any]
) -> Findings:
    if each == RELATIONS:
        table = _relation_table(counts, heads, halves)
        figures = {"graphs": draw_ratios(table)}
    else:
        shown = [name for name in (EDGE, SIBLINGS, SAME_TAG) if name in counts.kinds.pairs]
        ratios = {name: _ratios(counts.of(name)) for name in shown}
        table = _head_table(ratios, counts.density, heads)
        figures = {"graphs-heads": draw_head_grids(table, shown)}
    name = "graphs" if each == RELATIONS else "graphs-heads"
    index = ("related",) if each == RELATIONS else ("related", "layer", "head")
    caption = _caption(each, counts.density)
    return Findings(name, caption, table, settings | {"each": each}, figures, index)


def _caption(each: str, density: Floats) -> str:
    halves = "; the best head was chosen on one half of them, scored on the other"
    return (
        "How many times as often as by chance the pairs of words that a head joins are related in "
        "the tree; 1 is chance. Chance is the share of related pairs among all of the same "
        "sentence; matched, among those of the same sentence as many words apart, so that it is 1 "
        f"where a head knows of nothing but distance. Heads join {density.mean():.1%} of the "
        f"pairs, from {density.min():.1%} to {density.max():.1%}. Intervals of 95 % over sentences"
        f"{halves if each == RELATIONS else ''}."
    )


def _ratios(counts: Any) -> Any:  # [3, S, …] -> [2, 3, …]
    """Return ratio, low and high, to chance and to matched chance."""
    return np.stack([np.stack(resampled_ratio(counts[0], counts[base])) for base in (1, 2)])


def _relation_table(counts: Counts, heads: Sequence[Head], halves: Halves) -> Any:
    """All heads together, and the best one of each relation."""
    import pandas as pd

    names = list(counts.kinds.pairs)
    together, alone, best = [], [], []
    for name in names:
        own = counts.of(name)
        best.append(_best(own[:, halves.chosen_on]))
        together.append(own.sum(-1))
        alone.append(own[:, ~halves.chosen_on, best[-1]])
    # Intervals of all relations at once: drawing sentences is what takes time.
    whole, single = (_ratios(np.stack(part, -1)) for part in (together, alone))
    return pd.DataFrame(
        [
            {
                "related": name,
                "pairs": len(counts.kinds.pairs[name]),
                "density": float(counts.density.mean()),
                **_named("", whole[..., place]),
                "layer": heads[best[place]][0],
                "head": heads[best[place]][1],
                **_named("best ", single[..., place]),
            }
            for place, name in enumerate(names)
        ]
    )


def _best(counts: Any) -> int:  # [3, S, C]
    """Return the head that is farthest above chance."""
    joined, chance, _ = counts.sum(1)
    # A count's spread by chance is about its root: the ratio alone would favour rare flukes.
    return int(((joined - chance) / np.sqrt(np.maximum(chance, 1.0))).argmax())


def _named(prefix: str, ratios: Any) -> dict[str, float]:
    """Name ratio, low and high, to chance and to matched chance."""
    names = [
        f"{prefix}{base}{end}" for base in ("ratio", "matched") for end in ("", " low", " high")
    ]
    return dict(zip(names, map(float, ratios.ravel()), strict=True))


def _head_table(ratios: dict[str, Any], density: Floats, heads: Sequence[Head]) -> Any:
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "layer": layer,
                "head": head,
                "related": name,
                "density": float(density[place]),
                **_named("", own[:, :, place]),
            }
            for place, (layer, head) in enumerate(heads)
            for name, own in ratios.items()
        ]
    )
