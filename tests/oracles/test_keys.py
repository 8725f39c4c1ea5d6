import math

import torch

from tests.oracles import reference_quantile_threshold, reference_voting_keys


def keys_of(scores: torch.Tensor, **options: object) -> list[int]:
    """Return the voting keys of one head without a mask."""
    pairs = torch.ones_like(scores, dtype=torch.bool)
    return reference_voting_keys(scores, pairs, **options)[0, 0].nonzero().squeeze(-1).tolist()


def test_significance_by_hand():
    # Columns: max - mean = 2, 0, 1.
    scores = torch.tensor([[3.0, 1.0, 2.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.0]]).view(1, 1, 3, 3)
    assert keys_of(scores, key_selection="significance", num_keys=1) == [0]
    assert keys_of(scores, key_selection="significance", num_keys=2) == [0, 2]


def test_sampled_queries_divide_the_sum_by_n():
    scores = torch.zeros(1, 1, 4, 4)
    scores[0, 0, 0, :2] = 4.0  # 4 - 8/4 = 2; by the sample's size it would be 0
    scores[0, 0, 1, :2] = torch.tensor([1.8, 0.0])  # 1.8 - 1.8/4 < 2
    options = {"num_keys": 1, "key_factor": 1.0, "sample_ranks": {4: torch.tensor([0, 1])}}
    assert keys_of(scores, key_selection="sampled_queries", **options) == [0]


def test_strided_ranks():
    scores = torch.zeros(1, 1, 10, 10)
    assert keys_of(scores, key_selection="strided", num_keys=4) == [0, 2, 5, 7]
    assert keys_of(scores, key_selection="strided", key_step=4) == [0, 4, 8]


def test_quantile_is_clamped_at_zero_and_infinite_without_a_pair():
    scores = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).view(1, 1, 2, 2)
    pairs = torch.ones_like(scores, dtype=torch.bool)
    voters = reference_voting_keys(scores, pairs)
    triples = {2: torch.tensor([[0, 1, 0], [1, 0, 1]])}
    options = {"vote_rate": 0.5, "triples": triples}
    assert reference_quantile_threshold(scores, pairs, voters, **options).item() == 0
    one = torch.ones(1, 1, 1, 1)
    alone = reference_quantile_threshold(one, one.bool(), one.bool()[..., 0], **options)
    assert alone.item() == math.inf
