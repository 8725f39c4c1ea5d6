import pytest
import torch

from jat_graph.testing import assert_within_budget

TRUTH = torch.tensor([1.0, -4.0], dtype=torch.float64)
SINGLE = TRUTH.float()
ULP = 4 * torch.finfo(torch.float32).eps  # of the largest entry


def test_exact_results_pass():
    assert_within_budget(SINGLE, SINGLE, TRUTH)


def test_twice_the_references_error_passes_and_more_does_not():
    low = SINGLE + 1e-3
    assert_within_budget(SINGLE - 2e-3, low, TRUTH)
    with pytest.raises(AssertionError, match="above its budget"):
        assert_within_budget(SINGLE - 2.1e-3, low, TRUTH)


def test_a_few_ulps_pass_where_the_reference_is_exact():
    assert_within_budget(SINGLE + 3 * ULP, SINGLE, TRUTH)
    with pytest.raises(AssertionError, match="above its budget"):
        assert_within_budget(SINGLE + 6 * ULP, SINGLE, TRUTH)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_result_that_is_not_finite_fails(bad):
    with pytest.raises(AssertionError, match="above its budget"):
        assert_within_budget(torch.tensor([1.0, bad]), SINGLE, TRUTH)


def test_shapes_and_precisions_must_fit():
    with pytest.raises(AssertionError, match="one shape"):
        assert_within_budget(SINGLE[:1], SINGLE, TRUTH)
    with pytest.raises(AssertionError, match="float64 truth"):
        assert_within_budget(SINGLE, SINGLE, TRUTH.float())
    with pytest.raises(AssertionError, match="float64 truth"):
        assert_within_budget(SINGLE.half(), SINGLE, TRUTH)


def test_nothing_is_within_budget():
    empty = torch.zeros(0)
    assert_within_budget(empty, empty, empty.double())
