import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from tests.inputs import random_heads
from tests.oracles import (
    reference_adjacency,
    reference_mask,
    reference_normalize,
    reference_scores,
    reference_voting_keys,
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


def test_significance_by_hand():
    # Columns: max - mean = 2, 0, 1.
    scores = one_head([[3.0, 1.0, 2.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    pairs = torch.ones_like(scores, dtype=torch.bool)
    for number, chosen in ((1, [True, False, False]), (2, [True, False, True])):
        options = {"key_selection": "significance", "num_keys": number}
        assert reference_voting_keys(scores, pairs, **options).tolist() == [[chosen]]
