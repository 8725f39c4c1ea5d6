import pytest
import torch
from hypothesis import given

from jat_graph.kernels import rank_tokens
from tests.kernels.support import (
    IMPLEMENTATIONS,
    ballots,
    brute_force,
    columns_and_limits,
    vote_cube,
)

implementations = pytest.mark.parametrize("name", IMPLEMENTATIONS)


def joined_pairs(order, reach):
    """Read off who joins whom, ``[..., U, L, L]`` bool: token i, token k."""
    flat_order, flat_reach = order.flatten(0, -2), reach.flatten(0, -2)
    length = order.size(-1)
    pairs = torch.zeros(len(flat_order), length, length, dtype=torch.bool)
    for row, places, reaches in zip(pairs, flat_order.tolist(), flat_reach.tolist(), strict=True):
        for token, end in zip(places, reaches, strict=True):
            joined = places[:end] if end >= 0 else places[end:]
            assert -1 not in joined
            if end:
                row[token, joined] = True
    return pairs.view(*order.shape, length)


@implementations
@given(case=columns_and_limits())
def test_the_ranking_says_who_votes_for_whom(name, case):
    columns, _ = case
    order, reach = IMPLEMENTATIONS[name].rank(*case)
    assert order.dtype == reach.dtype == torch.int32
    pairs = joined_pairs(order, reach)
    # A masked token may lie within reach of a zero, where its features are zero, too.
    pairs &= ~columns.isnan().unsqueeze(-2)
    assert torch.equal(pairs, vote_cube(*case))


@given(ballot=ballots())
def test_rankings_hold_the_counted_votes(ballot):
    rule, scores, norms = ballot
    columns, limits = rule.settle(scores, norms)
    pairs = joined_pairs(*rank_tokens(columns, limits)) & ~columns.isnan().unsqueeze(-2)
    assert torch.equal(pairs.sum(2).to(scores.dtype), brute_force(*ballot))


@implementations
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_of_every_size_are_sorted(name, dtype):
    # From subnormal to huge numbers: a radix sort must look at every bit that differs.
    exponents = torch.linspace(-60, 60, 200, dtype=dtype)
    columns = (10.0 ** (exponents / 2)) * torch.randn(1, 1, 200, dtype=dtype)
    order, reach = IMPLEMENTATIONS[name].rank(columns, torch.zeros(1, 1, dtype=dtype))
    pairs = joined_pairs(order, reach)
    assert torch.equal(pairs, vote_cube(columns, torch.zeros(1, 1, dtype=dtype)))
    positive = int((columns > 0).sum())
    assert torch.equal(
        columns[0, 0, order[0, 0, :positive]],
        columns[columns > 0].sort(descending=True).values,
    )


def test_equal_scores_are_ranked_by_position():
    order, _ = IMPLEMENTATIONS["cpu"].rank(torch.ones(1, 1, 9), torch.zeros(1, 1))
    assert order[0, 0].tolist() == list(range(9))


def test_the_operator_does_what_its_description_says():
    columns, limits = torch.randn(2, 3, 4, 6), torch.rand(2, 3, 4)
    torch.library.opcheck(torch.ops.jat_graph.rank_tokens, (columns, limits))
    turned = torch.randn(2, 3, 6, 4).mT, limits[:1, :, :1].expand(2, 3, 4)
    torch.library.opcheck(torch.ops.jat_graph.rank_tokens, turned)
    assert not rank_tokens(columns.requires_grad_(), limits).order.requires_grad
