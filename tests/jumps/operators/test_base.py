import pytest
import torch

from jat_graph.operators import Operator
from jat_graph.testing import OperatorContract
from tests.oracles import reference_graph


class Bare(Operator):
    """A new structure: one method, everything else inherited."""

    def __init__(self, matrix):
        self.matrix, self.shape = matrix, matrix.shape
        self.dtype, self.device = matrix.dtype, matrix.device

    def _matmul(self, x, diagonal):
        return self.matrix @ x + diagonal * x


class TestBareOperator(OperatorContract):
    def create_operator(self, query, key):
        return Bare(self.dense_truth(query, key))

    def dense_truth(self, query, key):
        return reference_graph(query, key, is_causal=True, threshold=2.0).adjacency


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (3, 2, 4, 4), (2, 4, 4), (2, 3, 4)])
def test_features_of_another_shape_are_named(shape):
    operator = Bare(torch.zeros(2, 3, 4, 4))
    with pytest.raises(ValueError, match=r"x must be \[2, 3, 4, D\], got"):
        operator.matmul(torch.zeros(shape))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_accumulate_in_the_operators_dtype(dtype):
    operator = Bare(torch.ones(1, 1, 300, 300))
    x = torch.full((1, 1, 300, 1), 0.1).to(dtype)
    result = operator.matmul(x)
    assert result.dtype == dtype
    wanted = (300 * x[0, 0, 0, 0].double()).to(dtype)
    assert (result == wanted).all()


def test_autocast_is_off(device):
    operator = Bare(torch.rand(1, 1, 16, 16, device=device))
    x = torch.rand(1, 1, 16, 4, device=device)
    plain = operator.matmul(x)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        assert torch.equal(operator.matmul(x), plain)
