import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.inputs import random_heads, random_padding_mask
from tests.oracles import (
    reference_graph,
    reference_jump_attention,
    reference_normalize,
    reference_scores_propagated,
    released_adjacency,
    released_attention,
    released_efficient_scores,
    released_scores,
)

# What JatConfig.released() sets, in the oracle's words.
RELEASED = {"threshold": 3.0, "inclusive": True, "normalize_keys": True}


def released_heads_input(length: int, seed: int, heads: int = 2) -> tuple[torch.Tensor, ...]:
    """Return random heads with keys of norm above 1."""
    query, key, value, _ = random_heads(2, heads, length, 4, seed=seed, threshold=3.0)
    query = query * 1.5
    assert (key.norm(dim=-1) > 1).any()
    return query, key, value


def test_adjacency_by_hand():
    # S = [[4, 6], [4, 6]]; key norms 0.5 -> 1 and 2; D = 1. Key 0: 16. Key 1: 36 / 2 = 18.
    query = torch.tensor([[8.0], [8.0]], dtype=torch.float64)[None, None]
    key = torch.tensor([[0.5], [0.75]], dtype=torch.float64)[None, None]
    assert released_adjacency(query, key, threshold=16.0)[0, 0].tolist() == [[1, 1], [1, 1]]
    assert released_adjacency(query, key, threshold=16.1)[0, 0].tolist() == [[1, 0.5], [0.5, 1]]
    assert released_adjacency(query, 4 * key, threshold=128.1)[0, 0, 0, 1] == 0.5
    assert released_adjacency(query, 4 * key, threshold=192.1)[0, 0, 0, 1] == 0


@settings(max_examples=25, deadline=None)
@given(length=st.integers(5, 14), seed=st.integers(0, 9999), same_sign=st.booleans())
def test_released_rules_are_the_general_oracles(length, seed, same_sign):
    query, key, value = released_heads_input(length, seed)
    graph = reference_graph(query, key, same_sign_only=same_sign, **RELEASED)
    joined = (graph.adjacency > 0).double().mean() * length / (length - 1)
    assume(0.1 <= joined <= 0.9)
    adjacency = released_adjacency(query, key, same_sign=same_sign)
    torch.testing.assert_close(
        adjacency, graph.adjacency + torch.eye(length), rtol=1e-12, atol=1e-12
    )
    for order, coefficient in ((1, 0.5), (3, 0.3)):
        scores = released_scores(
            query, key, order=order, coefficient=coefficient, same_sign=same_sign
        )
        weights = (1 - coefficient, *[coefficient] * order)
        want = reference_scores_propagated(query, key, graph.adj_norm, weights)
        torch.testing.assert_close(scores, want)
    output = released_attention(released_scores(query, key, same_sign=same_sign), value, 4)
    want = reference_jump_attention(
        query, key, value, hop_weights=(0.5, 0.5), same_sign_only=same_sign, **RELEASED
    )
    torch.testing.assert_close(output, want)


def test_key_norms_matter_in_that_comparison():
    query, key, _ = released_heads_input(12, 0)
    with_norm = reference_graph(query, key, **RELEASED).adjacency
    without = reference_graph(query, key, **(RELEASED | {"normalize_keys": False})).adjacency
    assert not torch.equal(with_norm, without)


@pytest.mark.parametrize("side", ["left", "right", "scattered"])
def test_padding_takes_no_part(side):
    valid = random_padding_mask(2, 12, side=side, min_valid=5, seed=3)
    query, key, value = released_heads_input(12, 1)
    assert not valid.all()
    got = released_attention(released_scores(query, key, valid=valid), value, 4, valid)
    want = reference_jump_attention(
        query, key, value, hop_weights=(0.5, 0.5), attention_mask=valid, **RELEASED
    )
    torch.testing.assert_close(got, want)


def test_adjacency_carries_no_gradient():
    query, key, _ = released_heads_input(6, 0)
    assert not released_adjacency(query.requires_grad_(), key.requires_grad_()).requires_grad
    assert torch.autograd.gradcheck(released_scores, (query, key))


@settings(max_examples=25, deadline=None)
@given(
    length=st.integers(2, 20),
    seed=st.integers(0, 9999),
    heads=st.integers(1, 2),
    order=st.integers(1, 3),
)
def test_the_efficient_variant_is_the_general_oracles(length, seed, heads, order):
    query, key, value = released_heads_input(length, seed, heads)
    size = min(length, 2 * math.ceil(math.log(length)))
    sample = torch.randperm(length, generator=torch.Generator().manual_seed(seed))[:size]
    scores = released_efficient_scores(query, key, sample, order=order)
    got = released_attention(scores, value, 4)
    options = {
        "hop_weights": (0.5, *[0.5] * order),
        "nodes": "selected",
        "key_selection": "sampled_queries",
        "key_factor": 2.0,
        "sample_ranks": {length: sample},
        **RELEASED,
    }
    torch.testing.assert_close(got, reference_jump_attention(query, key, value, **options))


def test_order_sums_the_hops():
    query, key, _ = released_heads_input(8, 0)
    adj_norm = reference_normalize(released_adjacency(query, key) - torch.eye(8))
    one, two = (released_scores(query, key, order=order, coefficient=1.0) for order in (1, 2))
    torch.testing.assert_close(two, one + adj_norm @ one @ adj_norm.mT)
