"""What triplet heads read, by hand; the layer's tests compare it with the oracle."""

import math

import torch
from torch.testing import assert_close

from jat_graph.nn.triplet_attention import triplet_heads


def test_scores_are_volumes_over_the_root_of_three() -> None:
    axes = torch.eye(3, dtype=torch.float64)
    query, key, second = (2 * axes[i].expand(1, 1, 2, 3) for i in range(3))
    second = torch.stack([second[0, 0, 0], torch.zeros(3).double()])[None, None]
    value = torch.tensor([[[[1.0, 0, 0], [0.0, 0, 0]]]], dtype=torch.float64)
    out = triplet_heads(query, key, value, second, pairs="partner", mask=None, seed=0)
    weight = torch.tensor(8 / math.sqrt(3)).sigmoid()  # 2 · 2 · 2 against 0
    assert_close(out[0, 0, :, 0], weight.expand(2).double(), rtol=1e-6, atol=0)
