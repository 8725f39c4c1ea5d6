"""Kernels of pairs by every form: votes, a ranking that says who votes for whom, peaks, sums."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import jat_graph.jumps.adjacency.pairs  # noqa: F401 - which has one of the operators
from jat_graph.jumps.adjacency.standard import running_sums
from jat_graph.jumps.kernels import (
    counting,
    query_peaks,
    rank_tokens,
    ranking,
    significance,
    sum_joined,
    threshold_product,
)
from tests.jumps.kernels.support import (
    TRITON,
    columns_and_limits,
    constants,
    each_form,
    run,
    threads,
    torch_and_triton,
    vote_cube,
)
from tests.support import assert_within_budget


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


@given(
    queries=st.integers(1, 40),
    length=st.integers(1, 40),
    width=st.sampled_from((1, 7, 8, 64)),
    share=st.sampled_from((0.0, 0.5, 1.0)),
    block=st.sampled_from((1, 100, 2**21)),
    seed=st.integers(0, 2**20),
)
def test_peaks_are_maxima_over_the_seen_queries(queries, length, width, share, block, seed):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(2, 3, queries, width, generator=generator, dtype=torch.float64)
    key = torch.randn(2, 3, length, width, generator=generator, dtype=torch.float64)
    seen = torch.rand(2, 1, queries, generator=generator) < share
    with constants(significance, BLOCK=block):
        peak = query_peaks(query, key, seen)
        everything = query_peaks(query, key, None)
    scores = query @ key.mT
    torch.testing.assert_close(everything, scores.amax(-2), rtol=1e-12, atol=1e-12)
    some = seen.any(-1, keepdim=True).expand(2, 3, length)
    wanted = scores.masked_fill(~seen.unsqueeze(-1), -torch.inf).amax(-2)
    torch.testing.assert_close(peak[some], wanted[some], rtol=1e-12, atol=1e-12)
    assert peak.isfinite().all()


@torch_and_triton
@given(
    queries=st.integers(1, 70),
    length=st.integers(1, 70),
    width=st.integers(1, 40),
    dtype=st.sampled_from((torch.float32, torch.float64)),
)
def test_each_form_finds_them(form, queries, length, width, dtype):
    # Sums of products of small integers are exact, in whatever order.
    query = torch.randint(-4, 5, (2, queries, width)).to(dtype)
    key = torch.randint(-4, 5, (2, length, width)).to(dtype)
    peak = run("peaks", form, query, key)
    assert peak.dtype == dtype
    assert torch.equal(peak, (key @ query.mT).amax(-1))
    # rows beyond the last query are no queries
    assert (run("peaks", form, query.abs() + 1, -key.abs() - 1) < 0).all()


@pytest.mark.parametrize("form", [TRITON])
@pytest.mark.parametrize("width", [8, 65, 256])
def test_products_are_as_exact_as_plain_ones(form, width):
    query, key = torch.randn(2, 90, width), torch.randn(2, 100, width)
    truth = (key.double() @ query.double().mT).amax(-1)
    assert_within_budget(run("peaks", form, query, key), (key @ query.mT).amax(-1), truth)
    double = run("peaks", form, query.double(), key.double())
    torch.testing.assert_close(double, truth, rtol=1e-10, atol=1e-10)


SMALL = {"SEGMENT": 8, "CHUNK": 4, "TOKENS": 16, "FEATURES": 4, "INDICES": 8}


def features_of(columns, width, dtype):
    """Normal features, zero where a token is masked."""
    x = torch.randn(len(columns), columns.size(2), width, dtype=dtype)
    return x.masked_fill(columns.isnan().all(1).unsqueeze(-1), 0.0)


@pytest.mark.slow
@each_form
@given(case=columns_and_limits(), width=st.integers(1, 40))
def test_sums_are_those_over_the_joined_tokens(form, case, width):
    counts = vote_cube(*case).sum(1)
    x = features_of(case[0], width, case[0].dtype)
    found = run("add_joined", form, x, *run("rank", form, *case))
    assert found.dtype == x.dtype
    assert_within_budget(found, counts.to(x.dtype) @ x, counts.double() @ x.double())


@each_form
def test_a_place_without_a_token_adds_nothing(form):
    order = torch.tensor([[[2, -1, 0]]], dtype=torch.int32)
    reach = torch.tensor([[[1, 0, -1]]], dtype=torch.int32)
    x = torch.tensor([[[1.0], [10.0], [100.0]]])
    assert run("add_joined", form, x, order, reach).flatten().tolist() == [1, 0, 100]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "sizes"),
    [
        ("torch", {"BLOCK": 1}),
        ("torch", {"BLOCK": 300}),
        pytest.param("triton", SMALL, marks=TRITON.marks),
        pytest.param("triton", SMALL | {"HELD": 500}, marks=TRITON.marks),
    ],
)
@settings(max_examples=8)
@given(case=columns_and_limits(longest=20), width=st.integers(1, 6))
def test_blocks_and_segments_add_up(form, sizes, case, width):
    x = features_of(case[0], width, torch.float64)
    ranking = run("rank", form, *case)
    with constants(threshold_product, **sizes):
        found = run("add_joined", form, x, *ranking)
    torch.testing.assert_close(found, vote_cube(*case).sum(1).double() @ x, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@each_form
def test_the_error_does_not_grow_with_the_length(form):
    # Features of one sign: a sum in one go would lose a digit every tenfold length.
    length = 3000
    columns, x = torch.rand(1, 2, length) + 1, torch.randn(1, length, 4) + 10
    limits = torch.full((1, 2), 2.25)
    counts = vote_cube(columns, limits).sum(1)
    assert 0.3 < (counts > 0).double().mean() < 1
    found = run("add_joined", form, x, *run("rank", form, columns, limits))
    assert_within_budget(found, counts.float() @ x, counts.double() @ x.double())


def graphs(requires_grad=False):
    columns = torch.randn(2, 2, 4, 9, dtype=torch.float64)
    columns[0, 0, :, 3] = math.nan
    x = torch.randn(2, 2, 9, 5, dtype=torch.float64, requires_grad=requires_grad)
    return x, rank_tokens(columns, torch.full((2, 2, 4), 0.3, dtype=torch.float64))


def test_gradients_and_their_gradients():
    x, ranking = graphs(requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: sum_joined(t, ranking), [x])
    assert torch.autograd.gradgradcheck(lambda t: sum_joined(t, ranking), [x])


def test_strides_do_not_matter():
    x, ranking = graphs()
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(sum_joined(turned, ranking), sum_joined(x, ranking))


X, COLUMNS, LIMITS = torch.randn(2, 3, 6, 4), torch.randn(2, 3, 4, 6), torch.rand(2, 3, 4)
TURNED = torch.randn(2, 3, 6, 4).mT, LIMITS[:1, :, :1].expand(2, 3, 4)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("count_votes", (COLUMNS, LIMITS, 1, 4)),
        ("count_votes", (*TURNED, 0, 6)),
        ("rank_tokens", (COLUMNS, LIMITS)),
        ("rank_tokens", TURNED),
        ("query_peaks", (X, torch.randn(2, 3, 5, 4))),
        ("largest_silent", (torch.rand(1, 2, 1), 1 + torch.rand(3, 2, 5))),
    ],
)
def test_choices_do_what_their_descriptions_say(name, arguments):
    torch.library.opcheck(getattr(torch.ops.jat_graph, name), arguments)


def test_sums_do_what_their_description_says():
    x, ranking = X.clone().requires_grad_(), rank_tokens(COLUMNS, LIMITS)
    torch.library.opcheck(torch.ops.jat_graph.sum_joined, (x, *ranking))


@pytest.mark.slow
@each_form
@pytest.mark.parametrize("number", [1, 2])
def test_runs_are_equal(form, number):
    columns, limits = torch.randn(3, 7, 2 * counting.WIDTH + 3), torch.rand(3, 7)
    columns = columns if form == "numba" else columns[..., :41].contiguous()
    x = torch.randn(3, columns.size(-1), 6)
    with threads(number):
        ranking = run("rank", form, columns, limits)
        counts = [run("count", form, columns, limits, 0, len(x[0])) for _ in range(5)]
        sums = [run("add_joined", form, x, *ranking) for _ in range(5)]
    for first, *others in (counts, sums):
        assert all(torch.equal(other, first) for other in others)
    assert torch.equal(counts[0], counts[0].mT)
    assert torch.equal(counts[0], run("count", "torch", columns, limits, 0, len(x[0])))


@given(
    shape=st.tuples(*[st.integers(1, 5)] * 3),
    dim=st.integers(0, 2),
    backward=st.booleans(),
    gradient=st.booleans(),
)
def test_running_sums_are_cumsums(shape, dim, backward, gradient):
    x = torch.randn(shape).double()
    wanted = x.flip(dim).cumsum(dim).flip(dim) if backward else x.cumsum(dim)
    assert_close(running_sums(x.clone().requires_grad_(gradient), dim, backward), wanted)
