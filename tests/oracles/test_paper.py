import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inputs import random_heads
from tests.oracles import (
    paper_adjacency,
    paper_head,
    paper_order_scores,
    paper_vote,
    reference_graph,
    reference_jump_attention,
    reference_normalize,
    reference_scores_propagated,
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
