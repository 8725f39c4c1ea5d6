"""Links between the words of a text: which pairs a head joins, directly or through a third.

A head **links** word i to word k if the probability with which i attends to k is above
mean + c · std. Mean and standard deviation are those of one text, over all pairwise probabilities
of the model: of all layers, heads and pairs of words, a word with itself too. A word is its first
word piece; special tokens and other pieces are left out, before the mean is taken. Much attention
rests on special tokens: with them the standard deviation is more than twice the mean, and every
pair is above mean − ½ std, of which the paper prints 70.5 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

# How far above the mean a probability must be to make a link, in standard deviations.
SPREADS: Mapping[str, float] = {"mean + std": 1.0, "mean + ½ std": 0.5, "mean − ½ std": -0.5}
STONES = "mean + std"  # the links that stepping stones are made of, and p of Definition 3.1
TRIPLES = ("δ", "otherwise", "bridged")

# Kinds of pairs: two entities, an entity and a word that is none, any two words, one word alone.
DIFFERENT, MIXED, ALL, SELF = "different types", "entity and other", "all words", "self"
WHOLE = "all layers"


class TypedText(NamedTuple):
    """A text whose words may have types."""

    words: Sequence[str]
    types: Sequence[str | None]  # of each word


# The paper's motivating example: the links that matter are those among its three things.
EXAMPLE = TypedText(
    "Book cost more than pencil . Book cost less than computer .".split(),
    ["book", None, None, None, "pencil", None, "book", None, None, None, "computer", None],
)


def find_links(rows: Tensor, spread: float) -> Tensor:  # [..., n, n], [..., n, n]
    r"""Say which words a head links, a word with itself too.

    .. math:: \mathrm{link}_{ik} = \mathbb 1[P_{ik} > \mu + c\,\sigma]

    μ and σ are mean and standard deviation (of the population) over all that is given.

    Reference:
        The thresholds of Figures 2 and 7 of the JAT paper, mean + std and mean ± ½ std, over all
        pairwise self-attention scores of the model. Probabilities of words stand for them here.
    """
    return rows.double() > _cut(rows, spread)


def find_stepping_stones(links: Tensor) -> Tensor:  # [..., n, n], [..., n, n]
    """Say which pairs of words have a stepping stone: a third word that both are linked to.

    Reference:
        The JAT paper's motivation: i and k both look at j. Here a look is a link; in Eq. 2 it is a
        large score.
    """
    return count_thirds(links) > 0


def count_thirds(links: Tensor) -> Tensor:  # [..., n, n], [..., n, n]
    """Count the third words that both words of a pair are linked to; none for a word alone."""
    different = _pairs(links)
    looks = (links & different).double()  # k is neither i nor j
    return (looks @ looks.mT).long() * different


def link_names(kind: str) -> tuple[str, ...]:
    """Return what is counted of a kind of pairs."""
    names = tuple(f"{kind} > {name}" for name in SPREADS)
    return names if kind == SELF else (*names, *(f"{what}, {kind}" for what in TRIPLES))


def count_links(rows: Tensor, types: Sequence[str | None]) -> dict[str, Tensor]:  # [layers, 2]
    r"""Count the links of one text, layer by layer: how many are found, and among how many.

    The rows are the probabilities of all layers and heads, ``[layers, H, n, n]``.

    Four kinds of ordered pairs are counted: words of ``"different types"``, ``"entity and other"``,
    a word with a type and one without, ``"all words"`` that differ, and ``"self"``, a word with
    itself. For each of them and each c, how many pairs are linked.

    Definition 3.1 is about three words, i, j and k, all different, and "high" is a probability of
    at least p = mean + std:

    .. math:: \delta = P(P_{ij} \ge p \mid P_{ik} \ge p, P_{jk} \ge p), \qquad
        \mathrm{otherwise} = P(P_{ij} \ge p \mid \text{not both})

    Both are shares of ordered triples, so that a pair with two such k counts twice. In the triples
    of both together each pair is there as often as any other: the share of all pairs,
    ``"> mean + std"``, is what chance gives. The definition holds for every δ that is below the
    share named so and at most 1 − otherwise.

    ``"bridged"`` is no number of the paper's: of the pairs that no direct link joins at mean + std,
    how many have a stepping stone. It is what attention leaves apart and a jump could join.

    Reference:
        Figures 2 and 7 and Definition 3.1 of the JAT paper. The definition is of one head's scores;
        here probabilities stand for them, whose p is the figures'.
    """
    found = {name: find_links(rows, spread) for name, spread in SPREADS.items()}
    high = rows.double() >= _cut(rows, SPREADS[STONES])
    thirds = count_thirds(high)
    others = (len(types) - 2 - thirds) * _pairs(high)
    direct = found[STONES]
    apart, stones = ~(direct | direct.mT), find_stepping_stones(direct)
    counted = {}
    for kind, pairs in _kinds(types).items():
        shares = [(links, pairs) for links in found.values()]
        shares += [(high, thirds * pairs), (high, others * pairs), (stones, apart & pairs)]
        for name, (some, among) in zip(link_names(kind), shares, strict=kind != SELF):
            counted[name] = _count(some, among)
    return counted


def measure_links(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[TypedText],
    *,
    max_length: int = 128,
) -> dict[str, dict[str, float | None]]:
    """Measure which words a model's heads link; see :func:`count_links` for what is counted.

    All heads of a layer count together, those that jump and those that do not: what jump heads
    change is seen beside the same layer of a model without. A text is cut at ``max_length``; one
    with fewer than two words left says nothing.

    Reference:
        Figures 2 and 7 of the JAT paper.
    """
    if not tokenizer.is_fast:
        name = type(tokenizer).__name__
        raise ValueError(f"tokenizer must be a fast one, which says where words begin, got {name}")
    totals: dict[str, Tensor] = {}
    for text in texts:
        encoded = tokenizer(
            " ".join(text.words), truncation=True, max_length=max_length, return_tensors="pt"
        )
        places = _first_pieces(encoded, text.words)
        if len(places) < 2:
            continue
        index = list(places.values())
        rows = torch.cat(_attentions(model, encoded)).cpu()[..., index, :][..., index]
        for what, counts in count_links(rows, [text.types[word] for word in places]).items():
            totals[what] = totals[what] + counts if what in totals else counts
    return _shares(totals)


def _attentions(model: PreTrainedModel, encoded: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Return the attention probabilities ``[1, H, L, L]`` of each layer."""
    inputs: dict[str, Any] = {name: part.to(model.device) for name, part in encoded.items()}
    was_training = model.training
    model.eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        rows = model(**inputs, output_attentions=True).attentions
    model.train(was_training)
    if not rows or any(row is None for row in rows):
        raise ValueError(
            "model must give the attention probabilities of all layers, which triplet heads and "
            f"fused attention do not, got a {type(model).__name__} that does not"
        )
    return tuple(rows)


def _first_pieces(encoded: BatchEncoding, words: Sequence[str]) -> dict[int, int]:
    """Return where each word begins among the tokens; a word that was cut off is not there."""
    places: dict[int, int] = {}
    start = 0
    for number, word in enumerate(words):
        place = encoded.char_to_token(start)
        if place is not None and place not in places.values():
            places[number] = place
        start += len(word) + 1
    return places


def _cut(rows: Tensor, spread: float) -> Tensor:
    """Return mean + c · std over all that is given."""
    values = rows.double()
    return values.mean() + spread * values.std(correction=0)


def _pairs(rows: Tensor) -> Tensor:
    """Return where two words differ, bool ``[n, n]``."""
    return ~torch.eye(rows.size(-1), dtype=torch.bool, device=rows.device)


def _kinds(types: Sequence[str | None]) -> dict[str, Tensor]:
    """Return where the pairs of each kind are, bool ``[n, n]``."""
    typed = torch.tensor([kind is not None for kind in types])
    differ = torch.tensor([[a != b for b in types] for a in types])
    both = typed & typed[:, None]
    alone = torch.eye(len(types), dtype=torch.bool)
    return {DIFFERENT: both & differ, MIXED: typed ^ typed[:, None], ALL: ~alone, SELF: alone}


def _count(found: Tensor, among: Tensor) -> Tensor:
    """Count layer by layer: those that are found, and those that are looked at, by weights."""
    weights = among.expand_as(found).long()
    return torch.stack([(found * weights).sum(dim=(1, 2, 3)), weights.sum(dim=(1, 2, 3))], dim=-1)


def _shares(totals: Mapping[str, Tensor]) -> dict[str, dict[str, float | None]]:
    """Turn counts ``[layers, 2]`` into shares, layer by layer."""
    shares: dict[str, dict[str, float | None]] = {}
    for what, counts in totals.items():
        rows = {f"layer {number}": row for number, row in enumerate(counts, start=1)}
        for layer, row in {WHOLE: counts.sum(dim=0), **rows}.items():
            some, of = row.tolist()
            shares.setdefault(layer, {})[what] = some / of if of else None
    return shares
