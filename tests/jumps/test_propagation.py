"""What propagation comes to: which scores change, in which heads, and what learns from it."""

import torch
import torch.nn.functional as F

from jat_graph import JatConfig, PairGraph, jump_attention, jump_operator
from tests.inputs import random_heads
from tests.support import assert_equal


def probabilities(query, key, config):
    """Return the rows of attention, which read the identity."""
    value = torch.eye(query.size(2), dtype=query.dtype).expand(*query.shape[:3], -1)
    return jump_attention(query, key, value, config=config)


def test_only_scores_between_two_selected_nodes_change():
    query, key, _, _ = random_heads(1, 2, 16, 8)
    config = JatConfig(
        PairGraph(nodes="selected", key_selection="strided", num_keys=6), hop_weights=(0, 1)
    )
    scores = probabilities(query, key, config).log()
    moved = scores - query @ key.mT * 8**-0.5
    nodes = torch.zeros(16, dtype=torch.bool)
    nodes[[r * 16 // 6 for r in range(6)]] = True
    # A row is known but for a number, which scores to those that are no nodes give.
    moved = moved - moved[..., ~nodes].mean(-1, keepdim=True)
    changed, between = moved.abs() > 1e-9, nodes[:, None] & nodes[None, :]
    assert not (changed & ~between).any()
    assert changed[..., between].double().mean() > 0.3


def test_a_lone_weight_is_a_factor_of_the_scores_and_no_ordinary_head():
    query, key, value, _ = random_heads(1, 2, 12, 4)
    twice = jump_attention(query, key, value, config=JatConfig(hop_weights=(2,)))
    assert_equal(twice, F.scaled_dot_product_attention(2 * query, key, value))


def test_no_gradient_flows_through_hard_votes_but_through_soft_ones():
    query, key, _, density = random_heads(1, 2, 8, 4)
    assert 0.1 <= density <= 0.9
    query.requires_grad_()
    for temperature in (None, 0.5):
        config = JatConfig(PairGraph(soft_temperature=temperature))
        operator = jump_operator(query, key, config=config)
        assert operator.to_dense().requires_grad == (temperature is not None)
    (grad,) = torch.autograd.grad(operator.to_dense().square().sum(), query)
    assert grad.abs().max() > 0
