"""Links between the words of a text: which pairs a head joins, directly or through a third.

A head **links** word i to word k if the probability with which i attends to k is above
mean + c · std. Mean and standard deviation are those of this head on this text, over all ordered
pairs of different words. A word is its first word piece; special tokens and other pieces are left
out, before the mean is taken.
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
STONES = "mean + std"  # the links that stepping stones are made of

DIFFERENT, ALL = "different types", "all words"
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
    r"""Say which pairs of words a head links.

    .. math:: \mathrm{link}_{ik} = \mathbb 1[P_{ik} > \mu + c\,\sigma], \qquad i \ne k

    μ and σ are mean and standard deviation (of the population) of the head's own P over i ≠ k.

    Reference:
        The thresholds of Figures 2 and 7 of the JAT paper, mean + std and mean ± ½ std. Over which
        numbers it takes the mean is not known; this is the library's choice.
    """
    pairs = _pairs(rows)
    values = rows[..., pairs].double()  # [..., n (n - 1)]
    mean = values.mean(dim=-1, keepdim=True)
    std = values.std(dim=-1, keepdim=True, correction=0)
    links = torch.zeros_like(rows, dtype=torch.bool)
    links[..., pairs] = values > mean + spread * std
    return links


def find_stepping_stones(links: Tensor) -> Tensor:  # [..., n, n], [..., n, n]
    """Say which pairs of words have a stepping stone: a third word that both are linked to.

    Reference:
        The JAT paper's motivation: i and k both look at j. Here a look is a link; in Eq. 2 it is a
        large score.
    """
    looks = links.float()
    return (looks @ looks.mT > 0) & _pairs(links)


def link_names(kind: str) -> tuple[str, ...]:
    """Return what is counted of a kind of pairs."""
    return (*(f"{kind} > {name}" for name in SPREADS), f"δ, {kind}")


def count_links(rows: Tensor, types: Sequence[str | None]) -> dict[str, Tensor]:  # [layers, 2]
    r"""Count the links of one text, layer by layer.

    Two kinds of pairs are counted: words of ``"different types"``, and ``"all words"`` that differ.
    For each of them and each c, how many pairs are linked. And for each of them δ:

    .. math:: \delta = P(\exists j: \mathrm{link}_{ij}, \mathrm{link}_{kj} \mid
        \text{neither } \mathrm{link}_{ik} \text{ nor } \mathrm{link}_{ki})

    that is, of the pairs that no direct link joins at mean + std, how many have a stepping stone:
    the share of what attention leaves apart that a jump could join.

    Reference:
        Figures 2 and 7 of the JAT paper. δ is this library's reading of its Definition 3.1, whose
        text was not at hand: do not take the number for the paper's own.
    """
    found = {name: find_links(rows, spread) for name, spread in SPREADS.items()}
    direct, stones = found[STONES], find_stepping_stones(found[STONES])
    apart = ~(direct | direct.mT)
    counted = {}
    for kind, pairs in {DIFFERENT: _different(types), ALL: _pairs(rows)}.items():
        *linked, delta = link_names(kind)
        for name, links in zip(linked, found.values(), strict=True):
            counted[name] = _count(links, pairs)
        counted[delta] = _count(stones, apart & pairs)
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


def _pairs(rows: Tensor) -> Tensor:
    """Return where two words differ, bool ``[n, n]``."""
    return ~torch.eye(rows.size(-1), dtype=torch.bool, device=rows.device)


def _different(types: Sequence[str | None]) -> Tensor:
    """Return where two words have types that differ, bool ``[n, n]``."""
    return torch.tensor([[None not in (a, b) and a != b for b in types] for a in types])


def _count(found: Tensor, among: Tensor) -> Tensor:
    """Count pairs layer by layer: those that are found, and those that are looked at."""
    among = among.expand_as(found)
    return torch.stack([(found & among).sum(dim=(1, 2, 3)), among.sum(dim=(1, 2, 3))], dim=-1)


def _shares(totals: Mapping[str, Tensor]) -> dict[str, dict[str, float | None]]:
    """Turn counts ``[layers, 2]`` into shares, layer by layer."""
    shares: dict[str, dict[str, float | None]] = {}
    for what, counts in totals.items():
        rows = {f"layer {number}": row for number, row in enumerate(counts, start=1)}
        for layer, row in {WHOLE: counts.sum(dim=0), **rows}.items():
            some, of = row.tolist()
            shares.setdefault(layer, {})[what] = some / of if of else None
    return shares
