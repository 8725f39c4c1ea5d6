"""How far another sense in the same sentence draws a word from its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.checks.numbers import check_integer
from jat_graph.probes.findings import Findings
from jat_graph.probes.intervals import resampled_ratio
from jat_graph.probes.meaning.answers import split_triples
from jat_graph.probes.meaning.centroids import SenseTable, unit
from jat_graph.probes.meaning.marked import MarkedSentence
from jat_graph.probes.meaning.pairs import (
    ALONE,
    CHANCE,
    JOINED_BY,
    OPPOSITE,
    SensePairs,
    draw_pairs,
)
from jat_graph.probes.meaning.pictures import draw_ratios
from jat_graph.probes.meaning.semantic import train_map
from jat_graph.probes.meaning.senses import check_rank
from jat_graph.probes.meaning.states import Integers, MarkedStates, read_states
from jat_graph.probes.storage import Floats
from jat_graph.probes.words import WordReader, check_layers
from jat_graph.progress import watched

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

AS_THEY_ARE, MAPPED = "as they are", "semantic probe"


@dataclass(frozen=True)
class AskedPairs:
    """Pairs whose sentences a model could read, alone and joined.

    Args:
        pairs: Which pairs these are.
        words: Their P times two words in the training.
        senses: The numbers of their senses.
        table: The senses of the training.
        joined: The states of words in joined sentences, four of each pair: of both, of the first
            before a random sentence, of the second behind one.
    """

    pairs: Integers  # [P]
    words: Integers  # [P, 2]
    senses: Integers  # [P, 2]
    table: SenseTable
    joined: MarkedStates

    @classmethod
    def of(
        cls, learned: MarkedStates, table: SenseTable, drawn: SensePairs, joined: MarkedStates
    ) -> AskedPairs:
        """Leave out pairs that are too long for the model when they are joined."""
        pairs = np.flatnonzero(joined.is_read.reshape(-1, 4).all(1))
        if not len(pairs):
            raise ValueError("training must have two sentences that fit the model, got none")
        words = drawn.words[pairs]
        senses = [table.number[learned.words[word].senses[0]] for word in words.ravel()]
        return cls(pairs, words, np.array(senses).reshape(-1, 2), table, joined)

    def rows(
        self, layer: int, states: Floats, maps: Mapping[str, Floats | None]
    ) -> list[dict[str, Any]]:
        """The ratios after a layer, after each map."""
        own, middle = states[self.words], self.table.centroids(states)[self.senses]  # [P, 2, D]
        count = self.table.counts[self.senses][..., None]
        others = (count * middle - own) / (count - 1)
        joined = self.joined.layer(layer).reshape(-1, 4, own.shape[-1])[self.pairs]
        asked = {ALONE: own, OPPOSITE: joined[:, :2], CHANCE: joined[:, 2:]}
        found = []
        for name, mapping in maps.items():
            for where, some in asked.items():
                three = (some, others, middle[:, ::-1])
                mapped = three if mapping is None else tuple(one @ mapping.T for one in three)
                own_row = {"layer": layer, "states": name, "sentence": where}
                found.append(own_row | _measures(*mapped))
        return found


def _measures(words: Floats, own: Floats, other: Floats) -> dict[str, float]:  # [P, 2, D] each
    """The ratio of mean cosines, and the share of words to which the other sense is nearer.

    The mean of ratios would hang on the few words whose cosine is near 0.
    """
    near, far = ((unit(words) * unit(middle)).sum(-1) for middle in (own, other))
    found: dict[str, float] = {}
    for name, above, below in (("ratio", near, far), ("wrong", near < far, np.ones_like(far))):
        middle, low, high = resampled_ratio(above.sum(1), below.sum(1))
        found |= {name: float(middle), f"{name}_low": float(low), f"{name}_high": float(high)}
    return found


def similarity_ratio(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    training: Sequence[MarkedSentence],
    folder: str | Path,
    *,
    pairs: int = 1000,
    layers: Sequence[int] | None = None,
    rank: int | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> Findings:
    """Ask how far another sense of a word in the same sentence draws a word from its own sense.

    A pair are two sentences with a word in two senses, each pair with another word. The ratio is
    the mean cosine of words with the centroid of their own sense, divided by the mean with that of
    the other one; a word is wrong where the other one is nearer. Both words of a pair are asked
    where each sentence stands alone, where the two are one sentence with "and" between them, and
    where a random sentence stands in the place of the other.

    A word is left out of its own centroid: with it, a word alone would be near its sense merely
    because it is itself. In a decoder only the second word can see the other sentence.

    Args:
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        training: Sentences with senses, from :func:`read_semcor`.
        folder: Where states are kept; those of the training are the same as for
            :func:`sense_probe`.
        pairs: How many pairs, or as many as there are words with two senses that occur twice.
            (default: 1000)
        layers: Layers to ask after; 0 is the embeddings. (default: None, all)
        rank: Rows of the semantic probe. (default: None, the model's width)
        seed: Seed of what is drawn, and of the semantic probe. (default: 0)
        batch_size: Most sentences that the model reads at a time. (default: 32)

    Returns:
        For each layer, as states are and after the semantic probe: the ratio and the share of
        wrong words, each with its 95 % interval over pairs.

    Raises:
        ValueError: If an option is not in its range, or there is nothing to learn from.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 4.3, where
        a word counts in its own centroid, and the mean of ratios is shown.
    """
    import pandas as pd

    chosen, rank = check_layers(model, layers), check_rank(rank, model)
    check_integer("pairs", pairs, least=1)
    reader = WordReader(model, tokenizer, batch_size=batch_size)
    learned = read_states(folder, reader, training)
    table = SenseTable.of(learned)
    drawn = draw_pairs(learned, table, pairs, seed)
    asked = AskedPairs.of(learned, table, drawn, read_states(folder, reader, drawn.joined))
    triples = split_triples(learned, table, seed)
    rows = []
    for layer in watched(chosen, "Comparing senses", len(chosen)):
        states = learned.layer(layer)
        mapping, _ = train_map(states, *triples, rank, seed)
        rows += asked.rows(layer, states, {AS_THEY_ARE: None, MAPPED: mapping})
    found = pd.DataFrame(rows)
    settings = {"pairs": len(asked.pairs), "rank": rank, "seed": seed}
    figures = {"ratio": draw_ratios(found)}
    index = ("layer", "states", "sentence")
    return Findings("ratio", _caption(found), found, settings, figures, index)


def _caption(table: pd.DataFrame) -> str:
    """Say what the numbers are, and those after the last layer."""
    last = table[(table["layer"] == table["layer"].max()) & (table["states"] == AS_THEY_ARE)]
    alone, opposite, chance = (
        last.loc[last["sentence"] == name].iloc[0] for name in (ALONE, OPPOSITE, CHANCE)
    )
    return (
        "How much nearer words are to the centroid of their own sense in SemCor than to that of "
        "another sense: the ratio of both mean cosines, and the share of words to which the other "
        "one is nearer (wrong), where a sentence stands alone, joined to one with the other sense "
        f"by '{JOINED_BY}', and joined to a random one; low and high are the ends of 95 % "
        f"intervals over pairs. After layer {last['layer'].iloc[0]} the ratio is "
        f"{alone['ratio']:.3f} alone, "
        f"{opposite['ratio']:.3f} with the other sense and {chance['ratio']:.3f} with a random "
        "sentence. Only what the other sense does beyond the random sentence is an effect of the "
        "sense."
    )
