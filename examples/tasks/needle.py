"""Facts in a text that are asked for later: what a head must find that is far away.

A text is made of units of two tokens: a fact is a key and its value, a question a mark and a key,
and all else is filler. A question is answered by saying the value; what follows does not say it.

Reference:
    Arora et al., *Zoology*, 2023, for recall of many pairs; Ruoss et al., *Randomized Positional
    Encodings Boost Length Generalization of Transformers*, ACL 2023, for the positions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

IGNORED = -100


class Facts(NamedTuple):
    """How many tokens there are of each kind; the mark of a question is the last one."""

    keys: int = 128
    values: int = 32
    filler: int = 64

    @property
    def mark(self) -> int:
        return self.keys + self.values + self.filler

    @property
    def vocabulary(self) -> int:
        return self.mark + 1


FACTS, LONGEST = Facts(), 16384


def draw_filler(batch: int, units: int) -> tuple[Tensor, Tensor]:
    """Return a text without facts, ``[B, units, 2]``, and answers to nothing."""
    first = FACTS.keys + FACTS.values
    tokens = torch.randint(first, first + FACTS.filler, (batch, units, 2))
    return tokens, torch.full_like(tokens, IGNORED)


def draw_training(batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, answers and positions, ``[B, length]`` each.

    Half of the units or fewer are facts and their questions. Positions rise from unit to unit by
    random steps, so that those of a longer text are known.
    """
    units = length // 2
    tokens, answers = draw_filler(batch, units)
    asked = int(torch.randint(1, 4, ()))
    most = min(FACTS.keys, units // 2 // (1 + asked))
    facts = int(torch.randint(max(1, most // 4), most + 1, ()))
    places = torch.rand(batch, units).argsort()[:, : facts * (1 + asked)]
    places = places.unflatten(1, (facts, 1 + asked)).sort().values
    put_facts(tokens, answers, places[..., 0], places[..., 1:])
    gaps = (torch.rand(batch, units) * (LONGEST // 2 - units)).long().sort().values
    positions = 2 * (gaps + torch.arange(units)).unsqueeze(-1) + torch.arange(2)
    return tokens.flatten(1), answers.flatten(1), positions.flatten(1)


def put_facts(tokens: Tensor, answers: Tensor, told: Tensor, asked: Tensor) -> None:
    """Put facts where they are told, ``[B, facts]``; ask for the first, ``[B, some, questions]``."""
    batch = torch.arange(len(tokens)).unsqueeze(-1)
    keys = torch.rand(len(tokens), FACTS.keys).argsort()[:, : told.size(1)]
    values = FACTS.keys + torch.randint(FACTS.values, told.shape)
    tokens[batch, told, 0], tokens[batch, told, 1] = keys, values
    for own in asked.unbind(-1):
        number = own.size(1)
        tokens[batch, own, 0], tokens[batch, own, 1] = FACTS.mark, keys[:, :number]
        answers[batch, own, 1] = values[:, :number]


KINDS = ("among filler", "among facts", "asked before")


def draw_test(kind: str, batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, answers and positions; eight facts, one an eighth, are asked for at the end.

    Answers stand in the last 16 tokens, in the order of the text. ``"among facts"``: there are 120
    others; ``"asked before"``: every eighth unit is a question for one of the eight, told or not.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    units = length // 2
    tokens, answers = draw_filler(batch, units)
    told, asked = torch.arange(8) * (units // 8 - 2), torch.arange(units - 8, units)
    told = told + torch.randint(units // 8 - 2, (batch, 8))
    others = FACTS.keys - 8 if kind == "among facts" else 0
    free = torch.rand(batch, units - 16).scatter_(1, told, 2).argsort()  # facts told come last
    asked = asked.expand(batch, 8)
    put_facts(tokens, answers, torch.cat([told, free[:, :others]], 1), asked.unsqueeze(-1))
    if kind == "asked before":
        places = free[:, : (units - 16) // 8]
        keys = tokens[torch.arange(batch).unsqueeze(-1), asked, 1]
        chosen = keys.gather(1, torch.randint(8, places.shape))
        tokens[torch.arange(batch).unsqueeze(-1), places] = torch.stack(
            [torch.full_like(chosen, FACTS.mark), chosen], -1
        )
    return tokens.flatten(1), answers.flatten(1), torch.arange(length).expand(batch, length)
