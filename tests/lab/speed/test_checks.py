"""The checks let right results through, and no wrong ones."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.kernels import count_votes
from jat_graph.lab.speed.checks import (
    CheckError,
    count_rows,
    require_close,
    require_equal,
    require_product,
    sampled_tokens,
)
from jat_graph.voting.rule import VoteRule

RULE = VoteRule(torch.full((1, 1), 1.0))


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 10**6))
def test_counted_rows_are_those_of_all_counts(length: int, keys: int, seed: int) -> None:
    scores = 1.5 * random(seed, 1, 2, length, keys)
    rows = sampled_tokens(length, scores.device)
    assert len(set(rows.tolist())) == len(rows) == min(length, 16)
    wanted = count_votes(*RULE.settle(scores))[:, :, rows]
    assert torch.equal(count_rows(RULE, scores, rows), wanted)


def test_the_definition_is_that_of_the_kernel() -> None:
    scores = random(0, 2, 3, 30, 7)
    for inclusive in (False, True):
        rule = VoteRule(torch.full((1, 1), 0.5), inclusive=inclusive)
        counts = count_rows(rule, scores, torch.arange(30))
        assert torch.equal(counts, count_votes(*rule.settle(scores)))


@given(st.integers(1, 40), st.integers(0, 10**6))
def test_a_right_product_passes_and_one_wrong_row_does_not(length: int, seed: int) -> None:
    matrix, x = random(seed, 1, 2, length, length), random(seed + 1, 1, 2, length, 3)
    rows = sampled_tokens(length, x.device)
    product = matrix @ x
    require_product("A x", product, rows, matrix[:, :, rows], x)
    product[:, 1, rows[-1], 2] += 0.01 * product.abs().max()
    with pytest.raises(CheckError, match=r"^A x: the result check failed, error .* nothing was"):
        require_product("A x", product, rows, matrix[:, :, rows], x)


def test_counts_must_be_equal() -> None:
    counts = torch.arange(6.0).view(2, 3)
    require_equal("count", counts, counts.clone())
    with pytest.raises(CheckError, match=r"^count: .* 1 of 6 numbers differ; nothing was timed$"):
        require_equal("count", counts, counts.clone().index_fill_(1, torch.tensor(0), 3.0))
    with pytest.raises(CheckError, match=r"^count: .* shapes are \[2, 3\] and \[3, 2\]"):
        require_equal("count", counts, counts.T)


def test_nan_passes_nowhere() -> None:
    bad = torch.tensor([1.0, torch.nan])
    with pytest.raises(CheckError):
        require_equal("loss", bad, bad)
    with pytest.raises(CheckError):
        require_close("loss", bad, torch.ones(2), torch.ones(2).double())
