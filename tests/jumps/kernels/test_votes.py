"""Votes by every form: how many there are, and a ranking that says who votes for whom."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.jumps.kernels import counting, ranking
from tests.jumps.kernels.support import (
    TRITON,
    columns_and_limits,
    constants,
    each_form,
    run,
    vote_cube,
)


@each_form
@given(case=columns_and_limits(), ends=st.tuples(st.integers(0, 70), st.integers(0, 70)))
def test_votes_are_counted_to_the_bit(form, case, ends):
    wanted = vote_cube(*case).sum(1).to(case[0].dtype)
    length = wanted.size(-1)
    start, stop = sorted(min(end, length) for end in ends)
    assert torch.equal(run("count", form, *case, 0, length), wanted)
    assert torch.equal(run("count", form, *case, start, stop), wanted[:, start:stop])


@pytest.mark.slow
@each_form
@pytest.mark.parametrize("size", [4, 8, 64])
def test_tiles_change_nothing(form, size):
    columns, limits = torch.randn(2, 5, 33), torch.rand(2, 5)
    wanted = vote_cube(columns, limits).sum(1).float()
    assert 0.1 < (wanted > 0).double().mean() < 1
    with constants(counting, PAIRS=size, TILE=size):
        assert torch.equal(run("count", form, columns, limits, 0, 33), wanted)
        assert torch.equal(run("count", form, columns, limits, 5, 20), wanted[:, 5:20])


@each_form
@pytest.mark.parametrize(("dtype", "joined"), [(torch.float64, 1), (torch.float32, 0)])
def test_the_product_is_rounded_before_it_is_compared(form, dtype, joined):
    # (1 + 2⁻¹³)² is 1 + 2⁻¹² + 2⁻²⁶, whose last term float32 rounds away.
    columns = torch.full((1, 1, 2), 1 + 2.0**-13, dtype=dtype)
    limits = torch.full((1, 1), 1 + 2.0**-12, dtype=dtype)
    assert run("count", form, columns, limits, 0, 2).tolist() == [[[joined] * 2] * 2]


@each_form
def test_products_too_small_for_a_normal_number_count(form):
    columns, limits = torch.full((1, 1, 1), 1e-20), torch.zeros(1, 1)
    assert run("count", form, columns, limits, 0, 1).item() == 1


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


@each_form
@given(case=columns_and_limits(longest=40))
def test_the_ranking_says_who_votes_for_whom(form, case):
    columns, _ = case
    order, reach = run("rank", form, *case)
    assert order.dtype == reach.dtype == torch.int32
    pairs = joined_pairs(order, reach)
    # A masked token may lie within reach of a zero, where its features are zero, too.
    pairs &= ~columns.isnan().unsqueeze(-2)
    assert torch.equal(pairs, vote_cube(*case))


@each_form
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_of_every_size_are_sorted(form, dtype):
    # From subnormal to huge numbers: a radix sort must look at every bit that differs.
    exponents = torch.linspace(-60, 60, 200, dtype=dtype)
    columns = (10.0 ** (exponents / 2)) * torch.randn(1, 1, 200, dtype=dtype)
    limits = torch.zeros(1, 1, dtype=dtype)
    order, reach = run("rank", form, columns, limits)
    assert torch.equal(joined_pairs(order, reach), vote_cube(columns, limits))
    places = order[0, 0, : int((columns > 0).sum())]
    assert torch.equal(columns[0, 0, places], columns[columns > 0].sort(descending=True).values)


@each_form
def test_equal_scores_keep_the_order_of_their_tokens(form):
    columns = torch.tensor([[[2.0, -1.0, 2.0, -1.0, 2.0]]])
    order, _ = run("rank", form, columns, torch.zeros(1, 1))
    positive, negative = order[0, 0, :3].tolist(), order[0, 0, 3:].tolist()
    assert positive == [0, 2, 4]
    assert sorted(negative) == [1, 3]


@pytest.mark.slow
@pytest.mark.parametrize("form", [TRITON])
@given(case=columns_and_limits(longest=20), block=st.sampled_from((1, 20, 50)))
def test_blocks_change_nothing(form, case, block):
    order, reach = run("rank", form, *case)
    with constants(ranking, BLOCK=block, INDICES=8):
        blocks = run("rank", form, *case)
    assert torch.equal(order, blocks[0])
    assert torch.equal(reach, blocks[1])
