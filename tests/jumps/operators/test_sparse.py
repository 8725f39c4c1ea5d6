import pytest
import torch

from jat_graph.operators import SparseOperator
from tests.jumps.operators.support import PairsContract
from tests.support import count_operations, needs_torch_sparse


class TestSparseOperator(PairsContract):
    def create(self, adjacency):
        return SparseOperator.of_pairs(adjacency)

    def test_the_matrix_is_torchs_csr(self):
        assert self.create_operator(*self.create_inputs()).matrix.layout == torch.sparse_csr


class TestCausalSparseOperator(TestSparseOperator):
    causal = True


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # that torch's CSR is not checked
@needs_torch_sparse
class TestSparseTensorOperator(PairsContract):
    """A ``torch_sparse.SparseTensor`` goes in and comes out."""

    causal = True

    def create_operator(self, query, key):
        from torch_sparse import SparseTensor

        truth = self.dense_truth(query, key)
        matrix = torch.block_diag(*truth.flatten(0, 1))
        return SparseOperator(SparseTensor.from_dense(matrix), truth.shape)

    def test_torch_multiplies_unless_weights_have_gradients(self):
        operator = self.create_operator(*self.create_inputs())
        x = torch.randn(2, 3, 12, 4, dtype=torch.float64)
        with count_operations() as by_torch:
            out = operator.matmul(x)
        operator.matrix.requires_grad_()
        with count_operations() as by_torch_sparse:
            again = operator.matmul(x)
        products = [
            seen["aten._sparse_mm_reduce_impl.default"] for seen in (by_torch, by_torch_sparse)
        ]
        assert products == [1, 0]
        torch.testing.assert_close(again, out, rtol=1e-12, atol=1e-12)
        again.sum().backward()
        assert operator.matrix.storage.value().grad.any()
