"""Features of areas against the oracle's loops, short and exact, long and in single precision."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from jat_graph.nn.areas import Areas
from jat_graph.testing import assert_within_budget
from tests.oracles import reference_area_mask, reference_area_pool, reference_areas

LONG = 16384
FEATURES = ("sum", "mean", "max", "std")


def pooled(areas: Areas, x: Tensor, kind: str) -> Tensor:
    if kind == "std":
        return areas.means_and_deviations(x)[1]
    return {"sum": areas.sums, "mean": areas.means, "max": areas.maxima}[kind](x)


def random_features(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 5),
    max_height=st.integers(1, 5),
    max_width=st.integers(1, 6),
    kind=st.sampled_from(FEATURES),
    seed=st.integers(0, 99),
)
def test_features_and_their_gradients_are_the_loops(
    rows: int, columns: int, max_height: int, max_width: int, kind: str, seed: int
) -> None:
    x = random_features(2, rows * columns, 3, seed=seed).requires_grad_()
    areas = reference_areas(rows * columns, max_width=max_width, max_height=max_height, height=rows)
    want = reference_area_pool(x, areas, kind)
    got = pooled(Areas(max_width, max_height, rows), x, kind)
    assert_close(got, want, rtol=1e-10, atol=1e-10)
    weight = random_features(*want.shape, seed=seed + 1)
    gradients = [torch.autograd.grad((out * weight).sum(), x)[0] for out in (got, want)]
    assert_close(*gradients, rtol=1e-10, atol=1e-10)


@given(
    rows=st.integers(1, 3),
    columns=st.integers(1, 5),
    max_height=st.integers(1, 3),
    max_width=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_sizes_and_masks_are_the_loops(
    rows: int, columns: int, max_height: int, max_width: int, seed: int
) -> None:
    length = rows * columns
    listed = reference_areas(length, max_width=max_width, max_height=max_height, height=rows)
    areas = Areas(max_width, max_height, rows)
    sizes = areas.sizes(torch.empty(length, 3))
    assert sizes.tolist() == [[area.height, area.width] for area in listed]
    allowed = torch.rand(2, length, generator=torch.Generator().manual_seed(seed)) < 0.7
    assert torch.equal(areas.readable(allowed), reference_area_mask(allowed, listed))


def test_the_mean_comes_with_the_deviation() -> None:
    x = random_features(2, 12, 3)
    areas = Areas(3, 2, 3)
    assert_close(areas.means_and_deviations(x)[0], areas.means(x), rtol=1e-12, atol=1e-12)


def summed_area_table(x: Tensor, max_width: int) -> Tensor:
    """Sums as differences of one running sum, which is what this library does not do."""
    table = torch.cat([torch.zeros_like(x[:1]), x.cumsum(0)])
    return torch.cat([table[width:] - table[:-width] for width in range(1, max_width + 1)])


@pytest.mark.parametrize("kind", ["sum", "mean", "std"])
def test_long_inputs_keep_their_digits_in_single_precision(kind: str) -> None:
    exact = 3.0 + random_features(LONG, 1)  # a mean that a running sum heaps up
    exact = exact.float().double()
    listed = reference_areas(LONG, max_width=3)
    truth = reference_area_pool(exact, listed, kind)
    low = reference_area_pool(exact.float(), listed, kind)
    areas = Areas(max_width=3)
    assert_within_budget(pooled(areas, exact.float(), kind), low, truth)
    if kind == "sum":
        with pytest.raises(AssertionError, match="above its budget"):
            assert_within_budget(summed_area_table(exact.float(), 3), low, truth)


def test_a_large_mean_does_not_swallow_the_deviation() -> None:
    exact = (1000.0 + random_features(64, 2)).float().double()
    listed = reference_areas(64, max_width=4)
    truth = reference_area_pool(exact, listed, "std")
    got = pooled(Areas(max_width=4), exact.float(), "std").double()
    assert_close(got, truth, rtol=1e-3, atol=1e-4)
    naive = (Areas(4).means(exact.float().square()) - Areas(4).means(exact.float()).square()).abs()
    assert (naive.sqrt().double() - truth).abs().max() > 0.05  # E[x²] − E[x]² has lost it


def test_equal_tokens_have_a_finite_gradient() -> None:
    x = torch.ones(6, 2, requires_grad=True)
    deviation = Areas(max_width=3).means_and_deviations(x)[1]
    (gradient,) = torch.autograd.grad(deviation.sum(), x)
    assert deviation.max() < 0.01
    assert gradient.isfinite().all()
