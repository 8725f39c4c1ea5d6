"""Linear maps under which squared distances are those of trees, and squared lengths depths."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import ReduceLROnPlateau

from jat_graph.probes.geometry.trees import Tree

DISTANCE, DEPTH = KINDS = ("distance", "depth")

# As in the source's code.
LEARNING_RATE, DROP, BATCH_SIZE, START = 1e-3, 0.1, 20, 0.05
MARGIN, PATIENCE = 1e-4, 5  # by how much the loss must fall, and for how many epochs it may not

Predict: TypeAlias = Callable[[Tensor], Tensor]


class TreeBatch(NamedTuple):
    """Sentences of about one length.

    A weight is 1 over how many pairs or words its sentence has, and 0 in padding.
    """

    states: Tensor  # [B, L, D]
    target: Tensor  # [B, L, L] distances, or [B, L] depths
    weight: Tensor  # the same

    @classmethod
    def of(cls, states: Sequence[Tensor], trees: Sequence[Tree], kind: str) -> TreeBatch:
        """Pad sentences; a word and itself are no pair."""
        device, length = states[0].device, max(map(len, trees))
        targets, weights = [], []
        for tree in trees:
            found = torch.from_numpy(tree.distances if kind == DISTANCE else tree.depths).float()
            asked = found > 0 if kind == DISTANCE else torch.ones_like(found)
            padding = (0, length - len(tree)) * found.dim()
            targets.append(F.pad(found, padding))
            weights.append(F.pad(asked / found.numel(), padding))
        padded = pad_sequence(list(states), batch_first=True)
        return cls(padded, torch.stack(targets).to(device), torch.stack(weights).to(device))

    def loss(self, projection: Tensor, predict: Predict) -> Tensor:
        """The sum over sentences of the mean absolute error."""
        error = (predict(self.states @ projection) - self.target).abs()
        return (error * self.weight).sum()


def squared_distances(points: Tensor) -> Tensor:  # [..., L, R] -> [..., L, L]
    """‖p_i − p_k‖² of all pairs; around their mean, where rounding is least."""
    centred = points - points.mean(-2, keepdim=True)
    norms = centred.square().sum(-1)
    found = norms[..., :, None] + norms[..., None, :] - 2 * centred @ centred.mT
    return found.clamp(min=0.0)


def powered_distances(points: Tensor, power: float) -> Tensor:  # [..., L, R] -> [..., L, L]
    """‖p_i − p_k‖ to a power; the slope of a root is kept finite at 0."""
    squared = squared_distances(points)
    return squared if power == 2 else (squared + 1e-6) ** (power / 2)


def squared_lengths(points: Tensor) -> Tensor:  # [..., R] -> [...]
    """‖p_i‖² of all words."""
    return points.square().sum(-1)


def predictor(kind: str, power: float = 2.0) -> Predict:
    """What a kind of probe says of points."""
    return partial(powered_distances, power=power) if kind == DISTANCE else squared_lengths


def tree_batches(
    states: Sequence[Tensor], trees: Sequence[Tree], kind: str, seed: int = 0
) -> list[TreeBatch]:
    """Batch sentences of about one length, which of them together is left to chance."""
    chance = np.random.default_rng(seed).random(len(trees))
    order = np.lexsort((chance, np.array([len(tree) for tree in trees])))
    groups = [order[start : start + BATCH_SIZE] for start in range(0, len(order), BATCH_SIZE)]
    return [
        TreeBatch.of([states[row] for row in rows], [trees[row] for row in rows], kind)
        for rows in groups
    ]


def train_probe(
    train: Sequence[TreeBatch],
    dev: Sequence[TreeBatch],
    predict: Predict,
    rank: int,
    epochs: int,
    seed: int,
) -> Tensor:  # B transposed, [D, R]
    """Train a probe as its source does, until the loss on ``dev`` falls no more.

    Reference:
        Hewitt and Manning 2019, section 3 and the code beside it.
    """
    generator = torch.Generator().manual_seed(seed)
    states = train[0].states
    start = torch.empty(states.shape[-1], rank).uniform_(-START, START, generator=generator)
    projection = start.to(states.device).requires_grad_()
    optimizer = torch.optim.Adam([projection], lr=LEARNING_RATE)
    scheduler = ReduceLROnPlateau(optimizer, factor=DROP, patience=0)
    best, least, waited = projection.detach().clone(), math.inf, 0
    for _ in range(epochs):
        for place in torch.randperm(len(train), generator=generator).tolist():
            optimizer.zero_grad()
            batch = train[place]
            mean = batch.loss(projection, predict) / len(batch.states)
            mean.backward()
            optimizer.step()
        loss = mean_loss(dev, projection, predict)
        scheduler.step(loss)
        if loss < least - MARGIN:
            best, least, waited = projection.detach().clone(), loss, 0
        elif (waited := waited + 1) == PATIENCE:
            break
    return best


@torch.no_grad()
def mean_loss(batches: Sequence[TreeBatch], projection: Tensor, predict: Predict) -> float:
    """The mean over sentences."""
    total = sum(float(batch.loss(projection, predict)) for batch in batches)
    return total / sum(len(batch.states) for batch in batches)
