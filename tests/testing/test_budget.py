import pytest
import torch

from tests.support import assert_within_budget

TRUTH = torch.tensor([1.0, -4.0], dtype=torch.float64)
SINGLE = TRUTH.float()
ULP = 4 * torch.finfo(torch.float32).eps  # of the largest entry
NAN, INF = (torch.tensor([1.0, bad]) for bad in (float("nan"), float("inf")))


def test_twice_the_references_error_passes_and_a_few_ulps_do_and_nothing_at_all():
    assert_within_budget(SINGLE - 2e-3, SINGLE + 1e-3, TRUTH)
    assert_within_budget(SINGLE + 3 * ULP, SINGLE, TRUTH)
    assert_within_budget(SINGLE[:0], SINGLE[:0], TRUTH[:0])


@pytest.mark.parametrize(
    ("fast", "low", "truth", "words"),
    [
        (SINGLE - 2.1e-3, SINGLE + 1e-3, TRUTH, "above its budget"),
        (SINGLE + 6 * ULP, SINGLE, TRUTH, "above its budget"),
        (NAN, SINGLE, TRUTH, "above its budget"),
        (INF, SINGLE, TRUTH, "above its budget"),
        (SINGLE[:1], SINGLE, TRUTH, "one shape"),
        (SINGLE, SINGLE, TRUTH.float(), "float64 truth"),
        (SINGLE.half(), SINGLE, TRUTH, "float64 truth"),
    ],
)
def test_what_is_further_off_or_does_not_fit_fails(fast, low, truth, words):
    with pytest.raises(AssertionError, match=words):
        assert_within_budget(fast, low, truth)
