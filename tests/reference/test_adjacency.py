import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from jat_graph.reference import (
    reference_adjacency,
    reference_mask,
    reference_normalize,
    reference_scores,
    reference_scores_propagated,
    reference_voting_keys,
)
from jat_graph.testing import random_heads, random_padding_mask


def one_head(rows: list[list[float]]) -> torch.Tensor:
    """Return scores of one head of one sequence."""
    return torch.tensor(rows, dtype=torch.float64)[None, None]


def assert_graph_is_informative(adjacency: torch.Tensor) -> None:
    """Between 10 and 90 % of the pairs are joined."""
    length = adjacency.shape[-1]
    share = (adjacency > 0).double().mean().item() * length / (length - 1)
    assert 0.1 <= share <= 0.9


def test_two_tokens_by_hand():
    # Key 0: 3 · 3 = 9. Key 1: 1 · 4 = 4.
    scores = one_head([[3.0, 1.0], [3.0, 4.0]])
    for threshold, weight in ((3.0, 1.0), (4.0, 0.5), (8.9, 0.5), (9.0, 0.0)):
        want = one_head([[0.0, weight], [weight, 0.0]])
        assert torch.equal(reference_adjacency(scores, threshold), want)
    want = one_head([[0.0, 1.0], [1.0, 0.0]])
    assert torch.equal(reference_adjacency(scores, 4.0, inclusive=True), want)


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


def test_negative_scores_join_unless_the_sign_gate_is_on():
    scores = one_head([[-2.0, 0.0], [-2.0, 0.0]])
    assert reference_adjacency(scores, 1.0)[0, 0, 0, 1] == 0.5
    assert not reference_adjacency(scores, 1.0, same_sign_only=True).any()
    # A gated product is no vote, even where 0 would be one.
    gated = reference_adjacency(scores, 0.0, same_sign_only=True, inclusive=True)
    assert gated[0, 0, 0, 1] == 0.5


def test_opposite_signs_never_join():
    scores = one_head([[5.0], [-5.0]]).expand(1, 1, 2, 2)
    assert not reference_adjacency(scores, 0.0, inclusive=True).any()


def test_key_norm_divides_the_product():
    scores = one_head([[3.0, 3.0], [3.0, 3.0]])
    norm = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
    assert reference_adjacency(scores, 5.0, key_norm=norm)[0, 0, 0, 1] == 0.5
    assert reference_adjacency(scores, 4.0, key_norm=norm)[0, 0, 0, 1] == 1.0


def test_threshold_per_head():
    scores = one_head([[3.0, 1.0], [3.0, 4.0]]).expand(2, 2, 2, 2)
    table = reference_adjacency(scores, ((4.0, 9.0),))
    assert table[:, 0, 0, 1].tolist() == [0.5, 0.5]
    assert not table[:, 1].any()


def test_share_is_over_the_voting_keys():
    scores = one_head([[3.0, 1.0], [3.0, 4.0]])
    voters = torch.tensor([[[True, False]]])
    assert reference_adjacency(scores, 8.0, voters=voters)[0, 0, 0, 1] == 1.0


def test_share_is_over_the_voting_keys_that_row_i_sees():
    # Row 2 sees all three keys, row 1 two; the keys that both see are 0 and 1.
    scores = torch.full((1, 1, 3, 3), 3.0)
    pairs = torch.ones(1, 1, 3, 3).tril().bool()
    adjacency = reference_adjacency(scores, 1.0, pairs=pairs)
    want = torch.tensor([[0, 0, 0], [1 / 2, 0, 0], [1 / 3, 2 / 3, 0]])
    torch.testing.assert_close(adjacency[0, 0], want)


def test_a_row_that_sees_no_voting_key_has_no_edge():
    scores = torch.full((1, 1, 3, 3), 3.0)
    pairs = torch.ones(1, 1, 3, 3).tril().bool()
    voters = torch.tensor([[[False, True, False]]])
    adjacency = reference_adjacency(scores, 1.0, pairs=pairs, voters=voters)
    assert adjacency.isfinite().all()
    assert adjacency[0, 0].nonzero().tolist() == [[2, 1]]


def test_masked_votes_are_zero_whatever_the_masked_scores_are():
    query, key, _, _ = random_heads(2, 2, 8, 4)
    valid = random_padding_mask(2, 8, seed=1, min_valid=4)
    pairs = reference_mask(query, valid).pairs
    scores = reference_scores(query, key)
    assert not pairs.all()
    want = reference_adjacency(scores, 6.0, pairs=pairs)
    for filling in (-math.inf, math.nan, 1e9):
        filled = scores.masked_fill(~pairs, filling)
        assert torch.equal(reference_adjacency(filled, 6.0, pairs=pairs), want)
    assert want.any()


def test_nodes_selected_keeps_edges_among_voters():
    query, key, _, _ = random_heads(2, 2, 10, 4)
    scores = reference_scores(query, key)
    pairs = torch.ones_like(scores, dtype=torch.bool)
    voters = reference_voting_keys(scores, pairs, key_selection="significance", num_keys=6)
    adjacency = reference_adjacency(scores, 1.0, voters=voters, nodes="selected")
    both = voters[..., :, None] & voters[..., None, :]
    full = reference_adjacency(scores, 1.0, voters=voters)
    assert torch.equal(adjacency, full * both)
    assert adjacency.any() and not torch.equal(adjacency, full)


def test_soft_votes_approach_hard_ones_and_keep_the_gate():
    query, key, _, _ = random_heads(2, 2, 8, 4)
    scores = reference_scores(query, key)
    for same_sign_only in (False, True):
        hard = reference_adjacency(scores, 6.0, same_sign_only=same_sign_only)
        soft = reference_adjacency(
            scores, 6.0, same_sign_only=same_sign_only, soft_temperature=1e-6
        )
        torch.testing.assert_close(soft, hard, rtol=1e-3, atol=1e-3)
    assert torch.allclose(
        reference_adjacency(scores, 6.0, soft_temperature=1e9)[..., 0, 1],
        torch.full((), 0.5, dtype=torch.float64),
    )


@settings(max_examples=25, deadline=None)
@given(
    length=st.integers(5, 12),
    seed=st.integers(0, 999),
    density=st.floats(0.2, 0.8),
    same_sign_only=st.booleans(),
    inclusive=st.booleans(),
)
def test_edges_at_a_larger_threshold_are_a_subset(length, seed, density, same_sign_only, inclusive):
    heads = random_heads(2, 2, length, 4, seed=seed, density=density)
    scores = reference_scores(heads.query, heads.key)
    options = {"same_sign_only": same_sign_only, "inclusive": inclusive}
    lower, middle, upper = (reference_adjacency(scores, rho, **options) for rho in (2, 6, 12))
    assert ((lower >= middle) & (middle >= upper)).all()
    assert lower.any()


@settings(max_examples=25, deadline=None)
@given(length=st.integers(5, 12), seed=st.integers(0, 999), padded=st.booleans())
def test_normalised_adjacency_is_symmetric_with_eigenvalues_up_to_one(length, seed, padded):
    query, key, _, _ = random_heads(2, 2, length, 4, seed=seed)
    mask = random_padding_mask(2, length, seed=seed) if padded else None
    pairs = reference_mask(query, mask).pairs
    adjacency = reference_adjacency(reference_scores(query, key), 6.0, pairs=pairs)
    adj_norm = reference_normalize(adjacency)
    torch.testing.assert_close(adj_norm, adj_norm.mT)
    eigenvalues = torch.linalg.eigvalsh(adj_norm)
    assert eigenvalues.abs().max() <= 1 + 1e-12
    assert_graph_is_informative(adjacency[:1])


@pytest.mark.parametrize("is_causal", [False, True])
def test_pygs_gcn_norm_is_the_normalised_adjacency(is_causal):
    heads = random_heads(1, 1, 12, 4, is_causal=is_causal)
    assert 0.1 <= heads.density <= 0.9
    pairs = reference_mask(heads.query, is_causal=is_causal).pairs
    adjacency = reference_adjacency(reference_scores(heads.query, heads.key), 6.0, pairs=pairs)
    target, source = adjacency[0, 0].nonzero(as_tuple=True)
    edges, weights = gcn_norm(
        torch.stack([source, target]),
        adjacency[0, 0, target, source],
        num_nodes=12,
        dtype=torch.float64,
    )
    dense = torch.zeros(12, 12, dtype=torch.float64)
    dense[edges[1], edges[0]] = weights
    torch.testing.assert_close(dense, reference_normalize(adjacency)[0, 0], rtol=1e-14, atol=1e-14)


def test_normalise_leaves_an_empty_graph_alone():
    assert torch.equal(reference_normalize(torch.zeros(1, 1, 3, 3)), torch.eye(3)[None, None])


def test_scores_propagated_equal_the_product_of_propagated_features():
    query, key, _, _ = random_heads(2, 2, 9, 4)
    adj_norm = reference_normalize(reference_adjacency(reference_scores(query, key), 6.0))
    weights = (0.3, 0.5, -0.2)
    want = sum(
        weight
        * (torch.linalg.matrix_power(adj_norm, p) @ query)
        @ (torch.linalg.matrix_power(adj_norm, p) @ key).mT
        for p, weight in enumerate(weights)
    )
    torch.testing.assert_close(reference_scores_propagated(query, key, adj_norm, weights), want)


def test_hop_weights_of_groups_of_heads():
    query, key, _, _ = random_heads(2, 3, 9, 4)
    adj_norm = reference_normalize(reference_adjacency(reference_scores(query, key), 6.0))
    groups = {(0, 2): (0.0, 1.0), (1,): (0.5, 0.0, 0.5)}
    got = reference_scores_propagated(query, key, adj_norm, groups)
    for group, weights in groups.items():
        want = reference_scores_propagated(query, key, adj_norm, weights)
        for head in group:
            torch.testing.assert_close(got[:, head], want[:, head])
    with pytest.raises(ValueError, match="each of 3 heads once"):
        reference_scores_propagated(query, key, adj_norm, {(0, 1): (1.0,)})


def test_scores_between_other_tokens_than_nodes_stay():
    query, key, _, _ = random_heads(1, 2, 9, 4)
    adj_norm = reference_normalize(reference_adjacency(reference_scores(query, key), 6.0))
    nodes = torch.zeros(1, 2, 9, dtype=torch.bool)
    nodes[..., [1, 4, 5]] = True
    got = reference_scores_propagated(query, key, adj_norm, (0.0, 1.0), nodes=nodes)
    both = nodes[..., :, None] & nodes[..., None, :]
    full = reference_scores_propagated(query, key, adj_norm, (0.0, 1.0))
    assert torch.equal(got[both], full[both])
    assert torch.equal(got[~both], (query @ key.mT)[~both])


def test_half_precision_scores_are_computed_in_float32():
    query, key, _, _ = random_heads(1, 1, 6, 4, dtype=torch.bfloat16)
    scores = reference_scores(query, key)
    assert scores.dtype == torch.float32
    assert torch.equal(scores, reference_scores(query.float(), key.float()))
