import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jat_graph.reference import (
    reference_mask,
    reference_num_keys,
    reference_num_samples,
    reference_quantile_threshold,
    reference_scores,
    reference_voting_keys,
)
from jat_graph.testing import random_heads, random_padding_mask


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


def test_ties_go_to_the_lower_index():
    scores = torch.zeros(1, 1, 6, 6)
    scores[..., 0, 1:] = 1.0
    assert keys_of(scores, key_selection="significance", num_keys=3) == [1, 2, 3]


def test_sampled_looks_at_the_sampled_queries_only():
    scores = torch.zeros(1, 1, 4, 4)
    scores[0, 0, 3, 2] = 9.0  # not sampled
    scores[0, 0, 1, 3] = 1.0
    options = {"num_keys": 1, "key_factor": 0.5}
    sample = {4: torch.tensor([1])}
    assert keys_of(scores, key_selection="significance", **options) == [2]
    # One sampled query: its maximum is its mean, so all measures are 0.
    assert keys_of(scores, key_selection="sampled", sample_ranks=sample, **options) == [0]
    options["key_factor"], sample = 1.0, {4: torch.tensor([1, 0])}
    assert keys_of(scores, key_selection="sampled", sample_ranks=sample, **options) == [3]


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


def test_a_sample_of_the_wrong_size_is_refused():
    scores = torch.zeros(1, 1, 8, 8)
    with pytest.raises(ValueError, match="8 ranks"):
        keys_of(scores, key_selection="sampled", sample_ranks={8: torch.tensor([0])})
    with pytest.raises(ValueError, match="n = 8"):
        keys_of(scores, key_selection="sampled")
    with pytest.raises(ValueError, match="'best'"):
        keys_of(scores, key_selection="best")


@pytest.mark.parametrize(
    "options",
    [
        {"key_selection": "all"},
        {"key_selection": "significance", "key_factor": 1.5},
        {"key_selection": "sampled", "key_factor": 1.5},
        {"key_selection": "sampled_queries", "key_factor": 1.0},
        {"key_selection": "strided", "num_keys": 3},
        {"key_selection": "strided", "key_step": 2},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.parametrize("side", ["left", "right", "scattered"])
def test_padding_does_not_change_who_votes(options, side):
    valid = random_padding_mask(3, 12, side=side, min_valid=4, seed=1)
    query, key, _, _ = random_heads(3, 2, 12, 4)
    pairs = reference_mask(query, valid).pairs
    options = options | {"sample_ranks": {n: samples(n, options) for n in range(1, 13)}}
    voters = reference_voting_keys(reference_scores(query, key), pairs, **options)
    assert not (voters & ~valid[:, None]).any()
    assert not valid.all()
    for b in range(3):
        own = valid[b].nonzero().squeeze(-1)
        scores = reference_scores(query[b : b + 1, :, own], key[b : b + 1, :, own])
        alone = reference_voting_keys(scores, torch.ones_like(scores).bool(), **options)
        assert torch.equal(voters[b : b + 1, :, own], alone)


def samples(n: int, options: dict[str, object]) -> torch.Tensor:
    """Return some ranks below n, as many as the options ask for."""
    size = reference_num_samples(
        n, options["key_selection"], key_factor=options.get("key_factor", 5.0)
    )
    return torch.randperm(n, generator=torch.Generator().manual_seed(n))[:size]


def draw_triples(n: int, num_keys: int, size: int) -> torch.Tensor:
    """Return random triples (i, k, j) with i ≠ k."""
    generator = torch.Generator().manual_seed(7)
    i = torch.randint(n, (size,), generator=generator)
    k = (i + torch.randint(1, n, (size,), generator=generator)) % n
    return torch.stack([i, k, torch.randint(num_keys, (size,), generator=generator)], dim=-1)


@settings(max_examples=25, deadline=None)
@given(rate=st.floats(0.02, 0.45), size=st.integers(20, 400), seed=st.integers(0, 99))
def test_the_wanted_share_of_triples_votes(rate, size, seed):
    query, key, _, _ = random_heads(2, 2, 10, 4, seed=seed)
    scores = reference_scores(query, key)
    pairs = torch.ones_like(scores, dtype=torch.bool)
    voters = reference_voting_keys(scores, pairs)
    triples = draw_triples(10, 10, size)
    threshold = reference_quantile_threshold(
        scores, pairs, voters, vote_rate=rate, triples={10: triples}
    )
    i, k, j = triples.unbind(-1)
    product = scores[:, :, i, j] * scores[:, :, k, j]  # [B, H, T]
    votes = (product > threshold[..., None]).double().sum(-1)
    # At most the rate votes; with the value itself more would, unless it was clamped.
    wanted = size - math.ceil((1 - rate) * size)
    assert (votes <= wanted).all()
    reached = (product >= threshold[..., None]).double().sum(-1)
    assert ((reached > wanted) | (threshold == 0)).all()
    assert (threshold > 0).any()


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


def test_quantile_takes_the_products_as_voted_on():
    scores = torch.tensor([[-2.0, 2.0], [-2.0, 1.0]]).view(1, 1, 2, 2)
    pairs = torch.ones_like(scores, dtype=torch.bool)
    voters = torch.ones(1, 1, 2, dtype=torch.bool)
    triples = {2: torch.tensor([[0, 1, 0], [0, 1, 1]])}  # products 4 and 2
    options = {"vote_rate": 0.4, "triples": triples}
    assert reference_quantile_threshold(scores, pairs, voters, **options).item() == 4
    gated = reference_quantile_threshold(scores, pairs, voters, same_sign_only=True, **options)
    assert gated.item() == 2
    norm = torch.tensor([8.0, 1.0]).view(1, 1, 2)
    divided = reference_quantile_threshold(scores, pairs, voters, key_norm=norm, **options)
    assert divided.item() == 2
