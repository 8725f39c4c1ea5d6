import pytest
import torch

from jat_graph.operators import DenseOperator
from jat_graph.testing import OperatorContract
from tests.oracles import reference_graph
from tests.support import assert_within_budget


class TestDenseHolds(OperatorContract):
    """An operator that holds its matrix passes."""

    def create_operator(self, query, key):
        return DenseOperator(reference_graph(query, key).adjacency)

    def dense_truth(self, query, key):
        return reference_graph(query, key).adjacency


class Wrong(TestDenseHolds):
    """The same with another matrix."""

    __test__ = False

    def __init__(self, change):
        self.change = change

    def create_operator(self, query, key):
        return DenseOperator(self.change(self.dense_truth(query, key)))


CHECKS = sorted(name for name in dir(OperatorContract) if name.startswith("test_"))


def failures(contract: OperatorContract) -> set[str]:
    """Return the names of the checks that fail."""
    failed = set()
    for name in CHECKS:
        try:
            getattr(contract, name)()
        except AssertionError:
            failed.add(name)
    return failed


def test_a_wrong_matrix_fails():
    failed = failures(Wrong(lambda truth: truth * 1.0001))
    assert failed >= {"test_matmul", "test_to_dense"}
    assert failed >= {"test_to_edge_index", "test_gradients"}


def test_a_transposed_matrix_fails():
    upper = Wrong(lambda truth: truth)
    upper.dense_truth = lambda *inputs: reference_graph(*inputs).adjacency.triu()
    upper.change = lambda truth: truth.mT
    assert failures(upper) >= {"test_matmul", "test_to_edge_index"}


def test_a_batch_that_mixes_its_items_fails():
    assert "test_batch_independence" in failures(Wrong(lambda truth: truth.flip(0)))


@pytest.mark.parametrize("change", [torch.zeros_like, torch.ones_like])
def test_an_empty_or_full_truth_fails(change):
    contract = TestDenseHolds()
    contract.dense_truth = lambda *inputs: change(reference_graph(*inputs).adjacency)
    assert "test_truth_is_neither_empty_nor_full" in failures(contract)


def test_the_contract_names_what_a_subclass_must_give():
    for method in (OperatorContract().create_operator, OperatorContract().dense_truth):
        with pytest.raises(NotImplementedError):
            method()


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
        (SINGLE[:1], SINGLE, TRUTH, None),
        (SINGLE, SINGLE, TRUTH.float(), None),
        (SINGLE.half(), SINGLE, TRUTH, None),
    ],
)
def test_what_is_further_off_or_does_not_fit_fails(fast, low, truth, words):
    with pytest.raises(AssertionError, match=words):
        assert_within_budget(fast, low, truth)
