"""Facts in a text that are asked for later: what a head must find that is far away.

A fact is one token, of a key and a value; a question is one, too, of a key, and is answered by
saying the value. All else is filler. What follows a question does not tell the answer.

Reference:
    Arora et al., *Zoology*, 2023, for recall of many pairs; Ruoss et al., *Randomized Positional
    Encodings Boost Length Generalization of Transformers*, ACL 2023, for the positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

KEYS, VALUES, FILLER, ASKED, LONGEST = 64, 16, 64, 16, 16384
# Numbers of tokens: values as answers, then questions, then filler, then facts.
QUESTION, OTHER = VALUES, VALUES + KEYS
FACT = OTHER + FILLER
VOCABULARY = FACT + KEYS * VALUES
IGNORED = -100
KINDS = ("among filler", "among facts", "asked before")


def draw_filler(batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Return a text without facts, and answers to nothing."""
    tokens = torch.randint(OTHER, FACT, (batch, length))
    return tokens, torch.full_like(tokens, IGNORED)


def draw_facts(batch: int, facts: int) -> tuple[Tensor, Tensor]:
    """Return keys, none of which is there twice in a text, and their values."""
    return torch.rand(batch, KEYS).argsort()[:, :facts], torch.randint(VALUES, (batch, facts))


def draw_training(batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, answers and positions, ``[B, length]`` each.

    Half of the text or less are facts and their questions. Positions rise by random steps, so that
    those of a longer text are known.
    """
    tokens, answers = draw_filler(batch, length)
    asked = int(torch.randint(1, 4, ()))
    most = min(KEYS, length // 2 // (1 + asked))
    facts = int(torch.randint(max(1, most // 4), most + 1, ()))
    places = torch.rand(batch, length).argsort()[:, : facts * (1 + asked)]
    places = places.unflatten(1, (facts, 1 + asked)).sort().values
    keys, values = draw_facts(batch, facts)
    tokens.scatter_(1, places[..., 0], FACT + VALUES * keys + values)
    for own in places[..., 1:].unbind(-1):
        tokens.scatter_(1, own, QUESTION + keys)
        answers.scatter_(1, own, values)
    gaps = (torch.rand(batch, length) * (LONGEST - length)).long().sort().values
    return tokens, answers, gaps + torch.arange(length)


def draw_test(kind: str, batch: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens, answers and positions; 16 facts are asked for at the end.

    One is in each sixteenth of the text, and the last 16 tokens are the questions in this order.
    ``"among facts"``: there are 48 others; ``"asked before"``: an eighth of the text are questions
    for the 16, told or not.
    """
    tokens, answers = draw_filler(batch, length)
    part = length // ASKED - 1
    told = torch.arange(ASKED) * part + torch.randint(part, (batch, ASKED))
    keys, values = draw_facts(batch, KEYS if kind == "among facts" else ASKED)
    free = torch.rand(batch, length - ASKED).scatter_(1, told, 2).argsort()  # those told come last
    if kind == "asked before":
        places = free[:, : length // 8]
        tokens.scatter_(1, places, QUESTION + keys.gather(1, torch.randint(ASKED, places.shape)))
    told = torch.cat([told, free[:, : keys.size(1) - ASKED]], 1)
    tokens.scatter_(1, told, FACT + VALUES * keys + values)
    tokens[:, -ASKED:], answers[:, -ASKED:] = QUESTION + keys[:, :ASKED], values[:, :ASKED]
    return tokens, answers, torch.arange(length).expand(batch, length)
