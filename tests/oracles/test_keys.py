import math

import pytest
import torch

from tests.oracles import (
    reference_num_keys,
    reference_num_samples,
    reference_quantile_threshold,
    reference_voting_keys,
)


def keys_of(scores: torch.Tensor, **options: object) -> list[int]:
    """Return the voting keys of one head without a mask."""
    pairs = torch.ones_like(scores, dtype=torch.bool)
    return reference_voting_keys(scores, pairs, **options)[0, 0].nonzero().squeeze(-1).tolist()


@pytest.mark.parametrize(
    ("n", "want"), [(1, 1), (2, 2), (10, 10), (64, 21), (128, 25), (512, 32), (4096, 42)]
)
def test_num_keys_is_five_times_the_logarithm(n, want):
    assert reference_num_keys(n, "significance") == want


def test_num_keys_rules():
    assert reference_num_keys(100, "all", num_keys=3) == 100
    assert reference_num_keys(100, "sampled", num_keys=3) == 3
    assert reference_num_keys(2, "sampled", num_keys=3) == 2
    # ceil(2 ln 10) = 5, but the released code rounds first: 2 ceil(ln 10) = 6.
    assert reference_num_keys(10, "sampled", key_factor=2.0) == 5
    assert reference_num_keys(10, "sampled_queries", key_factor=2.0) == 6
    assert reference_num_samples(1, "sampled") == 1
    assert reference_num_samples(10, "sampled_queries", key_factor=2.0) == 6


def test_significance_by_hand():
    # Columns: max - mean = 2, 0, 1.
    scores = torch.tensor([[3.0, 1.0, 2.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.0]]).view(1, 1, 3, 3)
    assert keys_of(scores, key_selection="significance", num_keys=1) == [0]
    assert keys_of(scores, key_selection="significance", num_keys=2) == [0, 2]


def test_sampled_queries_divide_the_sum_by_n():
    scores = torch.zeros(1, 1, 4, 4)
    scores[0, 0, 0, :2] = torch.tensor(
        [4.0, 4.0]
    )  # 4 - 8/4 = 2; by the sample's size it would be 0
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
