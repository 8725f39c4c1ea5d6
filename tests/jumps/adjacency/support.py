"""What the library samples, which the oracles are given."""

import torch
from torch import Tensor

from jat_graph import JatConfig
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.keys import sampled_positions
from jat_graph.jumps.adjacency.pairs import _sampled_triples
from jat_graph.jumps.adjacency.scores import QueryKeyScores


def sampled_ranks(config: JatConfig, count: int) -> Tensor:
    """Return the ranks that the library samples from a sequence of ``count`` tokens."""
    valid = torch.ones(1, 1, count, dtype=torch.bool)
    position, chosen = sampled_positions(config, valid, valid.sum(-1, keepdim=True))
    return position[chosen].sort().values


def sampled_triples(config: JatConfig, count: int) -> Tensor:
    """Return the triples (i, k, j) that the library samples: ``[T, 3]``."""
    nothing = torch.zeros(1, 1, count, 1)
    *triples, _ = _sampled_triples(config, QueryKeyScores(nothing, nothing, 1.0), TokenMask())
    return torch.stack([ranks[0, 0] for ranks in triples], dim=-1)
