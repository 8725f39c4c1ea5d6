"""The oracles of pairs by hand, and beside each other: the paper's, the released code's, ours."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.inputs import random_heads, random_padding_mask
from tests.oracles import (
    paper_adjacency,
    paper_head,
    paper_order_scores,
    paper_vote,
    reference_adjacency,
    reference_graph,
    reference_jump_attention,
    reference_normalize,
    reference_scores_propagated,
    reference_voting_keys,
    released_adjacency,
    released_attention,
    released_efficient_scores,
    released_scores,
)

PAIR = torch.tensor([[4.0, 1.0], [2.0, 3.0]], dtype=torch.float64)
UNITS = torch.eye(2, dtype=torch.float64)


def test_vote_by_hand():
    # Queries against unit keys: S = PAIR, D = 2. Key 0: 4 · 2 / 2 = 4. Key 1: 1 · 3 / 2 = 1.5.
    votes = paper_vote(PAIR, UNITS, 1.5)
    assert votes[0, 1].tolist() == [1.0, 0.0] and votes[1, 0].tolist() == [1.0, 0.0]
    assert paper_vote(PAIR, UNITS, 1.4)[0, 1].tolist() == [1.0, 1.0]


def test_no_token_votes_for_itself():
    scores = PAIR @ UNITS.T
    assert (scores**2 / 2).max() > 1.5  # of token 0 with itself: it would vote
    assert not paper_vote(PAIR, UNITS, 1.5).diagonal().any()
    assert not paper_adjacency(paper_vote(PAIR, UNITS, 0.0)).diagonal().any()


@settings(max_examples=10, deadline=None)
@given(length=st.integers(4, 8), seed=st.integers(0, 999), order=st.integers(1, 3))
def test_the_paper_agrees_with_the_general_oracle(length, seed, order):
    heads = random_heads(1, 1, length, 4, seed=seed)
    query, key, value = (t[0, 0] for t in heads[:3])
    graph = reference_graph(heads.query, heads.key)
    adjacency = paper_adjacency(paper_vote(query, key, 6.0))
    assert 0 < adjacency.count_nonzero() < length * (length - 1)
    torch.testing.assert_close(graph.adjacency[0, 0], adjacency, rtol=1e-12, atol=1e-12)
    adj_norm = reference_normalize(adjacency)
    propagated = paper_order_scores(query @ key.T, adj_norm, order)
    hops = [0.0] * (order - 1) + [1.0]
    general = reference_scores_propagated(heads.query, heads.key, graph.adj_norm, hops)
    torch.testing.assert_close(general[0, 0], propagated)
    output = reference_jump_attention(*heads[:3], hop_weights=hops)
    torch.testing.assert_close(output[0, 0], paper_head(propagated, value, 4))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_order_counts_from_one(order):
    scores = torch.randn(3, 3, dtype=torch.float64)
    adj_norm = reference_normalize(torch.ones(3, 3, dtype=torch.float64).triu(1))
    power = torch.linalg.matrix_power(adj_norm, order - 1)
    torch.testing.assert_close(
        paper_order_scores(scores, adj_norm, order), power @ scores @ power.T
    )


def one_head(rows: list[list[float]]) -> torch.Tensor:
    """Return scores of one head of one sequence."""
    return torch.tensor(rows, dtype=torch.float64)[None, None]


def test_three_tokens_by_hand():
    # Tokens 0 and 1 agree on key 2, tokens 1 and 2 on keys 0 and 1, tokens 0 and 2 on none.
    scores = one_head([[0.0, 0.0, 2.0], [2.0, 2.0, 2.0], [2.0, 2.0, 0.0]])
    adjacency = reference_adjacency(scores, 1.0)
    third = 1 / 3
    want = one_head([[0, third, 0], [third, 0, 2 * third], [0, 2 * third, 0]])
    torch.testing.assert_close(adjacency, want)
    degrees = torch.tensor([4 / 3, 2.0, 5 / 3], dtype=torch.float64)
    root = degrees.sqrt()
    looped = want + torch.eye(3)
    torch.testing.assert_close(reference_normalize(adjacency), looped / root[:, None] / root)


def test_share_is_over_the_voting_keys_that_row_i_sees():
    # Row 2 sees all three keys, row 1 two; the keys that both see are 0 and 1.
    scores = torch.full((1, 1, 3, 3), 3.0)
    pairs = torch.ones(1, 1, 3, 3).tril().bool()
    adjacency = reference_adjacency(scores, 1.0, pairs=pairs)
    want = torch.tensor([[0, 0, 0], [1 / 2, 0, 0], [1 / 3, 2 / 3, 0]])
    torch.testing.assert_close(adjacency[0, 0], want)


def test_significance_by_hand():
    # Columns: max - mean = 2, 0, 1.
    scores = one_head([[3.0, 1.0, 2.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    pairs = torch.ones_like(scores, dtype=torch.bool)
    for number, chosen in ((1, [True, False, False]), (2, [True, False, True])):
        options = {"key_selection": "significance", "num_keys": number}
        assert reference_voting_keys(scores, pairs, **options).tolist() == [[chosen]]


# What JatConfig.released() sets, in the oracle's words.
RELEASED = {"threshold": 3.0, "inclusive": True, "normalize_keys": True}


def released_heads_input(length: int, seed: int, heads: int = 2) -> tuple[torch.Tensor, ...]:
    """Return random heads with keys of norm above 1."""
    query, key, value, _ = random_heads(2, heads, length, 4, seed=seed, threshold=3.0)
    query = query * 1.5
    assert (key.norm(dim=-1) > 1).any()
    return query, key, value


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
