"""Sweeps of the kind ``programs``: small encoders find the wrong variable of a program.

They are trained on functions of Python's standard library, as many as the task says, in half of
which one use of a variable was put in the place of another. A model points at the wrong token, or
at the first one if all are right, and at where the right variable stands. Variants are ``none`` or
say which graph there is, and how: of its four kinds of edges head h jumps along the hth
(propagation); or a learned number of each kind is added to each head's scores (bias); or only
tokens that are joined read each other, beside themselves and the first one (pairs). A name may go
on after a space, where options differ. Within a seed all begin at the same weights and see the same
programs. Shares are of those with a wrong variable: found and repaired if told that there is one
(``told``) or not (``joint``), found, and repaired; ``uncorrupted`` is of those left alone rightly.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertConfig, BertModel

import jat_graph
from examples import questions
from examples.sweeps.definition import Run
from examples.tasks import programs
from examples.tasks.programs import KINDS, Program, corrupt
from jat_graph.operators import DenseOperator, NormalizedOperator

LAYERS, FEATURES, BATCH = 2, 64, 32
RATE, FASTER = 2e-3, 5  # of learning; by how much strengths and the bias learn faster
LEAST = torch.finfo(torch.float32).min
WAYS = ("propagation", "bias", "pairs")
GRAPHS = ("program", "random", "nearby")
VARIANTS = ("none", *(f"{graph}-{way}" for graph in GRAPHS for way in WAYS))
METRICS = ("told", "joint", "localisation", "repair", "uncorrupted")
JUMPS = jat_graph.JatConfig(jat_graph.PairGraph(), heads="all", strength="learned")


def check(run: Run) -> None:
    """Refuse sizes and variants that there are not."""
    run.refuse_model()
    run.count("steps", 1000)
    run.refuse_others(VARIANTS, kind_of(run))
    read_functions(run)


def kind_of(run: Run) -> str:
    """Return the variant without what its name may say of its options."""
    return run.variant.name.partition(" ")[0]


def read_functions(run: Run) -> tuple[list[Program], list[Program]]:
    """Return as many functions to train on and to test on as are asked for."""
    train = int(run.read_task(r"(\d+) functions", "'500 functions'")[1])
    parts = []
    for split, number in zip(programs.SPLITS, (train, run.count("tests", 1000)), strict=True):
        functions = programs.read_functions(split)
        if not 2 <= number <= len(functions):
            raise ValueError(f"{split} must be 2 to {len(functions)} functions, got {number}")
        parts.append(functions[:number])
    return parts[0], parts[1]


def run(run: Run) -> dict[str, Any]:
    """Train one model and test it; return its record."""
    train, test = read_functions(run)
    graph, _, way = kind_of(run).partition("-")
    torch.manual_seed(run.seed)
    model = Finder(way)
    losses = fit(model, train, graph, run.count("steps", 1000), run.seed)
    draw = random.Random(0)  # the same programs for all, every second one with a wrong variable
    shown = [corrupt(program, draw) if i % 2 else program for i, program in enumerate(test)]
    scores = {"test": measure(model, shown, graph)}
    return {"scores": scores, "losses": losses, "python": platform.python_version()}


class Batch(NamedTuple):
    """Programs as tensors."""

    words: Tensor  # [B, L, pieces of a name]
    roles: Tensor  # [B, L], 1 where a variable is read, 2 where it is bound, else 0
    edges: Tensor  # bool [B, kinds, L, L]
    wrong: Tensor  # [B], 0 if all variables are right
    right: Tensor  # bool [B, L], where its name is what should be there


class GraphEncoder(nn.Module):
    """A small BERT of given vectors, whose four heads may have the kinds of edges of a graph."""

    def __init__(self, way: str, **sizes: Any) -> None:
        super().__init__()
        sizes |= {"hidden_size": FEATURES, "intermediate_size": 2 * FEATURES}
        sizes |= {"num_hidden_layers": LAYERS, "num_attention_heads": len(KINDS)}
        sizes |= {"initializer_range": FEATURES**-0.5, "attention_probs_dropout_prob": 0.0}
        self.base = BertModel(BertConfig(**sizes), add_pooling_layer=False)
        self.way, self.bias = way, nn.Parameter(torch.zeros(len(KINDS), len(KINDS)))
        if way == "propagation":
            jat_graph.attach(self.base, JUMPS)

    def forward(self, edges: Tensor, read: Tensor, joined: Tensor, **inputs: Any) -> Any:
        """Read along edges ``[B, H, L, L]``, or only what is joined of what may be read, bool."""
        scores, jumps = torch.zeros(()), nullcontext()
        if self.way == "pairs":
            read = read & joined
        elif self.way == "bias":
            scores = torch.einsum("hk, bkij -> bhij", FASTER * self.bias, edges.float())
        elif self.way == "propagation":
            operator = NormalizedOperator(DenseOperator(edges.float()))
            jumps = jat_graph.using_graphs(self.base, operator)
        with jumps:
            return self.base(attention_mask=torch.where(read, scores, LEAST), **inputs)


class Finder(nn.Module):
    """A small encoder that points at the wrong variable, and at the right one."""

    def __init__(self, way: str = "") -> None:
        super().__init__()
        self.encoder = GraphEncoder(way, vocab_size=1, type_vocab_size=3)
        self.names = nn.Embedding(programs.BUCKETS + 1, FEATURES, padding_idx=0)
        self.point = nn.Linear(FEATURES, 2)

    def forward(self, batch: Batch) -> Tensor:
        """Return logits of tokens as the wrong one, and as one to copy, ``[B, 2, L]``."""
        given = (batch.words > 0).sum(-1, keepdim=True)
        vectors = self.names(batch.words).sum(-2) / given.clamp(min=1)
        length = batch.roles.size(1)
        first, itself = torch.arange(length) == 0, torch.eye(length, dtype=torch.bool)
        read = given[:, None, None, :, 0].expand(-1, -1, length, -1) > 0
        joined = batch.edges.any(1, keepdim=True) | itself | first | first[:, None]
        inputs = {"inputs_embeds": vectors, "token_type_ids": batch.roles}
        states = self.encoder(batch.edges, read, joined, **inputs).last_hidden_state
        allowed = torch.stack([first | (batch.roles == 1), batch.roles > 0], dim=1)
        return self.point(states).transpose(1, 2).masked_fill(~allowed, LEAST)


def make_batch(shown: Sequence[Program], graph: str, draw: random.Random) -> Batch:
    """Make tensors of some programs."""
    shape = len(shown), max(len(program.tokens) for program in shown)
    words = torch.zeros(*shape, programs.PIECES, dtype=torch.long)
    roles, right = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.bool)
    joined = []
    for row, program in enumerate(shown):
        words[row, : len(program.tokens)] = torch.tensor([*map(programs.pieces, program.tokens)])
        roles[row, [*program.reads]], roles[row, [*program.binds]] = 1, 2
        same = [x == program.right for x in program.tokens]
        right[row, : len(same)] = torch.tensor(same)
        for kind, pairs in enumerate(programs.edges_of(program, graph, draw)):
            joined += [(row, kind, *pair) for pair in pairs]
    edges = torch.zeros(shape[0], len(KINDS), shape[1], shape[1], dtype=torch.bool)
    edges[tuple(torch.tensor(joined, dtype=torch.long).view(-1, 4).T)] = True
    return Batch(words, roles, edges | edges.mT, torch.tensor([x.wrong for x in shown]), right)


def loss_of(logits: Tensor, batch: Batch) -> Tensor:
    """Return the loss of pointing at the wrong token, and of all copies of the right variable."""
    found, copied = logits.unbind(1)
    copied, right = copied[batch.wrong > 0], batch.right[batch.wrong > 0]
    missed = copied.logsumexp(-1) - copied.masked_fill(~right, LEAST).logsumexp(-1)
    return F.cross_entropy(found, batch.wrong) + missed.sum() / len(found)


def fit(model: Finder, train: Sequence[Program], graph: str, steps: int, seed: int) -> list[float]:
    """Train on programs that are drawn anew each time; return the loss of tenths of the steps."""
    model.train()
    losses = (loss_of(model(batch), batch) for batch in batches(train, graph, steps, seed))
    optimizer, schedule = questions.warm_adam(model, RATE, FASTER * RATE, steps)
    return questions.tenths(questions.descend(model, losses, optimizer, schedule, clip=1.0))


def batches(train: Sequence[Program], graph: str, steps: int, seed: int) -> Iterator[Batch]:
    """Yield programs in an order that is drawn, a wrong variable in half of them."""
    draw, edges, order = random.Random(seed), random.Random(seed), []
    for _ in range(steps):
        while len(order) < BATCH:
            order += draw.sample(train, len(train))
        own, order = order[:BATCH], order[BATCH:]
        own = [corrupt(one, draw) if draw.random() < 0.5 else one for one in own]
        yield make_batch(own, graph, edges)


@torch.no_grad()
def measure(model: Finder, shown: Sequence[Program], graph: str) -> dict[str, float]:
    """Return shares of the programs with a wrong variable, and of those without one."""
    model.eval()
    rows, draw = [], random.Random(0)
    for start in range(0, len(shown), BATCH):
        batch = make_batch(shown[start : start + BATCH], graph, draw)
        found, copied = model(batch).unbind(1)
        whole = batch.words[..., 0]
        same = (whole.unsqueeze(-1) == whole.unsqueeze(-2)).float()  # a name is where it stands
        name = torch.einsum("bij, bj -> bi", same, copied.softmax(-1)).argmax(-1, keepdim=True)
        said = found.argmax(-1), found[:, 1:].argmax(-1) + 1  # the second one if told
        answers = [batch.right.gather(1, name)[:, 0], *(place == batch.wrong for place in said)]
        rows.append(torch.stack([batch.wrong > 0, *answers]))
    wrong, repair, found, told = torch.cat(rows, dim=1)
    of_wrong = [own[wrong] for own in (told & repair, found & repair, found, repair)]
    shares = zip(METRICS, [*of_wrong, found[~wrong]], strict=True)
    return {name: own.double().mean().item() for name, own in shares}
