"""Linear maps of states under which distances and depths are those of trees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import ReduceLROnPlateau

from jat_graph.probes.findings import Floats
from jat_graph.probes.treebank import Edges, Sentence

DISTANCE, DEPTH = "distance", "depth"
# As in the source's code.
LEARNING_RATE, DROP, BATCH_SIZE, START = 1e-3, 0.1, 20, 0.05
MARGIN, PATIENCE = 1e-4, 5  # by how much the loss must fall, and for how many epochs it may not


def spanning_tree(distances: Floats, among: Sequence[int]) -> Edges:  # [n, n]
    """Join some words by the edges that are shortest together."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    # A distance of 0 is no edge there. All trees have as many edges: a constant changes none.
    own = distances[np.ix_(among, among)] + 1.0
    rows, columns = minimum_spanning_tree(own).nonzero()
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return frozenset((min(among[i], among[k]), max(among[i], among[k])) for i, k in pairs)


def squared_distances(points: Tensor) -> Tensor:  # [..., L, R] -> [..., L, L]
    """Return ‖p_i − p_k‖² of all pairs; around their mean, where rounding is least."""
    centred = points - points.mean(-2, keepdim=True)
    norms = centred.square().sum(-1)
    found = norms[..., :, None] + norms[..., None, :] - 2 * centred @ centred.mT
    return found.clamp(min=0.0)


class TreeBatch(NamedTuple):
    """Sentences of about one length."""

    states: Tensor  # [B, L, D]
    target: Tensor  # [B, L, L] distances, or [B, L] depths
    weight: Tensor  # 1 over how many pairs or words the sentence has, 0 in padding

    def loss(self, projection: Tensor, kind: str, power: float) -> Tensor:
        """The sum over sentences of the mean absolute error."""
        points = self.states @ projection
        if kind == DEPTH:
            found = points.square().sum(-1)
        else:
            found = squared_distances(points)
            # The slope of a root is kept finite at 0.
            found = found if power == 2 else (found + 1e-6) ** (power / 2)
        return ((found - self.target).abs() * self.weight).sum()


def tree_batches(
    states: Sequence[Tensor], trees: Sequence[Sentence], kind: str, seed: int = 0
) -> list[TreeBatch]:
    """Batch sentences of about one length, which of them together is left to chance."""
    chance = np.random.default_rng(seed).random(len(trees))
    order = np.lexsort((chance, np.array([len(tree) for tree in trees])))
    found = []
    for start in range(0, len(order), BATCH_SIZE):
        rows = order[start : start + BATCH_SIZE]
        length, targets, weights = len(trees[rows[-1]]), [], []  # of the longest
        for tree in (trees[row] for row in rows):
            target = torch.from_numpy(tree.distances if kind == DISTANCE else tree.depths).float()
            # A word and itself are no pair.
            asked = target > 0 if kind == DISTANCE else torch.ones_like(target)
            padding = (0, length - len(tree)) * target.dim()
            targets.append(F.pad(target, padding))
            weights.append(F.pad(asked / target.numel(), padding))
        padded = pad_sequence([states[row] for row in rows], batch_first=True)
        both = (torch.stack(part).to(padded.device) for part in (targets, weights))
        found.append(TreeBatch(padded, *both))
    return found


def train_probe(
    train: Sequence[TreeBatch],
    dev: Sequence[TreeBatch],
    kind: str,
    power: float,
    rank: int,
    epochs: int,
    seed: int,
) -> Tensor:  # B transposed, [D, R]
    """Train a probe as Hewitt and Manning 2019 do, until the loss on ``dev`` falls no more."""
    generator = torch.Generator().manual_seed(seed)
    states = train[0].states
    start = torch.empty(states.shape[-1], rank).uniform_(-START, START, generator=generator)
    projection = start.to(states.device).requires_grad_()
    optimizer = torch.optim.Adam([projection], lr=LEARNING_RATE)
    scheduler = ReduceLROnPlateau(optimizer, factor=DROP, patience=0)
    best, least, waited = projection.detach().clone(), math.inf, 0
    for _ in range(epochs):
        for index in torch.randperm(len(train), generator=generator).tolist():
            optimizer.zero_grad()
            mean = train[index].loss(projection, kind, power) / len(train[index].states)
            mean.backward()
            optimizer.step()
        with torch.no_grad():
            total = sum(float(batch.loss(projection, kind, power)) for batch in dev)
        loss = total / sum(len(batch.states) for batch in dev)
        scheduler.step(loss)
        if loss < least - MARGIN:
            best, least, waited = projection.detach().clone(), loss, 0
        elif (waited := waited + 1) == PATIENCE:
            break
    return best
