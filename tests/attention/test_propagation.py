import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, PairGraph
from jat_graph.attention.heads import merge_heads
from jat_graph.attention.jump_heads import JumpHeads
from jat_graph.attention.propagation import graph_operator, head_groups
from jat_graph.masks.tokens import TokenMask, resolve_mask
from tests.inputs import random_heads
from tests.oracles import reference_scores_propagated
from tests.support import (
    PADDING_MASKS,
    assert_equal,
    configs,
    count_operations,
    heads_and_masks,
    oracle_graph,
    with_half_joined,
)


@given(data=st.data())
def test_products_of_features_are_the_propagated_scores(data):
    case = data.draw(heads_and_masks(PADDING_MASKS))._replace(scale=0.7)
    num_heads = case.query.size(1)
    config = data.draw(configs("auto", PADDING_MASKS, num_heads))
    config = with_half_joined(config, case)
    query, key = (t.nan_to_num() * case.valid for t in case[:2])
    groups = head_groups(
        query,
        key,
        key,
        JumpHeads.everyone(config, num_heads),
        mask=resolve_mask(case.mask, False, query),
        scale=0.7,
    )
    products = [group.query @ group.key.mT for group in groups]
    found = merge_heads([group.heads for group in groups], products)
    graph = oracle_graph(config, case)
    nodes = graph.voters if config.graph.nodes == "selected" else None
    truth = reference_scores_propagated(query, key, graph.adj_norm, config.hop_weights, nodes=nodes)
    assert_equal(found, truth)


def test_only_scores_between_two_selected_nodes_change():
    query, key, _, _ = random_heads(1, 2, 16, 8)
    config = JatConfig(
        PairGraph(nodes="selected", key_selection="strided", num_keys=6), hop_weights=(0, 1)
    )
    jumping = JumpHeads(config, (0, 1))
    (group,) = head_groups(query, key, key, jumping, mask=TokenMask(), scale=8**-0.5)
    changed = (group.query @ group.key.mT - query @ key.mT).abs() > 1e-9
    nodes = torch.zeros(16, dtype=torch.bool)
    nodes[[r * 16 // 6 for r in range(6)]] = True
    between = nodes[:, None] & nodes[None, :]
    assert not (changed & ~between).any()
    assert changed[..., between].double().mean() > 0.3


def test_each_head_has_its_own_hops():
    query, key, _, _ = random_heads(2, 4, 12, 8)
    mapping = {(0, 3): (0, 1), (1,): (1,), (2,): (0.5, 0, -0.5)}
    options = {"mask": TokenMask(), "scale": 8**-0.5}
    jumping = JumpHeads.everyone(JatConfig(hop_weights=mapping), 4)
    groups = head_groups(query, key, key, jumping, **options)
    assert [group.heads for group in groups] == [(0, 3), (1,), (2,)]
    assert [group.query.size(-1) for group in groups] == [8, 8, 16]
    products = merge_heads([g.heads for g in groups], [g.query @ g.key.mT for g in groups])
    for heads, weights in mapping.items():
        alone = JumpHeads.everyone(JatConfig(hop_weights=weights), 4)
        (group,) = head_groups(query, key, key, alone, **options)
        assert_equal(products[:, heads], (group.query @ group.key.mT)[:, heads])
    assert (products[:, 0] - query[:, 0] @ key[:, 0].mT).abs().max() > 0.1


def test_a_weight_of_one_multiplies_nothing():
    query, key, _, _ = random_heads(1, 2, 6, 4)
    for hops, products in (((0, 1), 0), ((1, 1), 0), ((1, 0.5), 1)):
        jumping = JumpHeads(JatConfig(hop_weights=hops), (0, 1))
        with count_operations() as whole:
            head_groups(query, key, key, jumping, mask=TokenMask(), scale=0.5)
        with count_operations() as operator:
            graph_operator(query, key, jumping, TokenMask(), 0.5)[0].matmul(
                torch.cat([query, key], dim=-1)
            )
        assert whole["aten.mul.Tensor"] - operator["aten.mul.Tensor"] == products


@pytest.mark.parametrize(
    ("settings", "ordinary"),
    [
        ({"hop_weights": (1,)}, True),
        ({"hop_weights": (1, 0, 0), "vote_rate": 0.1}, True),
        ({"hop_weights": (2,)}, False),
        ({"hop_weights": (0, 1)}, False),
        ({"hop_weights": (0, 1), "threshold": math.inf}, True),
        ({"hop_weights": (0, 1), "vote_rate": 0.1}, False),
        ({"hop_weights": (0.5, 0.5), "threshold": math.inf}, False),
        ({"hop_weights": (0, 1), "threshold": ((math.inf, 1.0),)}, False),
        ({"hop_weights": {(0,): (0, 1), (1,): (1,)}, "threshold": ((math.inf, 1.0),)}, True),
        ({"hop_weights": {(0,): (1,), (1,): (0, 1)}, "threshold": ((math.inf, 1.0),)}, False),
    ],
)
def test_ordinary_heads_come_back_untouched(settings, ordinary):
    query, key, _, _ = random_heads(1, 2, 6, 4)
    jumping = JumpHeads(JatConfig.paper(**settings), (0, 1))
    assert jumping.is_identity == ordinary
    groups = head_groups(query, key, key, jumping, mask=TokenMask(), scale=0.5)
    assert (groups[0].query is query and groups[0].key is key) == ordinary


def test_no_gradient_flows_through_hard_votes_but_through_soft_ones():
    query, key, _, density = random_heads(1, 2, 8, 4)
    assert 0.1 <= density <= 0.9
    query.requires_grad_()
    for temperature in (None, 0.5):
        jumping = JumpHeads(JatConfig(PairGraph(soft_temperature=temperature)), (0, 1))
        operator, *_ = graph_operator(query, key, jumping, TokenMask(), 0.5)
        assert operator.to_dense().requires_grad == (temperature is not None)
    (grad,) = torch.autograd.grad(operator.to_dense().square().sum(), query)
    assert grad.abs().max() > 0
