import subprocess
import sys

import pytest
import torch

from jat_graph import JatConfig, PairGraph, jump_attention, jump_operator
from jat_graph.operators import SparseOperator
from tests.inputs import random_heads
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


def test_a_graph_without_edges():
    operator = jump_operator(
        *random_heads(1, 2, 4, 4)[:2], config=JatConfig(PairGraph(threshold=1e9, backend="sparse"))
    )
    x = torch.randn(1, 2, 4, 3, dtype=torch.float64)
    assert torch.equal(operator.matmul(x), x)
    assert operator.base.matmul(x).count_nonzero() == 0
    edge_index, weight = operator.base.to_edge_index()
    assert (edge_index.shape, weight.shape) == ((2, 0), (0,))


WITHOUT_THE_EXTRA = """
import sys
for name in ("torch_sparse", "torch_scatter"):
    sys.modules[name] = None  # importing it fails
import torch
from jat_graph import JatConfig, PairGraph, attention_graph, jump_attention
from tests.inputs import random_heads

query, key, value, density = random_heads(2, 2, 10, 4)
assert 0.1 <= density <= 0.9
outputs = [
    jump_attention(
        query, key, value, config=JatConfig.paper(backend=backend, hop_weights=(0.5, 0.5))
    )
    for backend in ("sparse", "dense", "threshold")
]
for output in outputs[1:]:
    torch.testing.assert_close(output, outputs[0], rtol=1e-10, atol=1e-10)
assert attention_graph(query, key, config=JatConfig(), max_neighbors=2).num_edges > 0
torch.save(outputs[0], sys.argv[1])
"""


@pytest.mark.slow
def test_results_are_the_same_without_the_extra(tmp_path):
    path = tmp_path / "output.pt"
    subprocess.run([sys.executable, "-c", WITHOUT_THE_EXTRA, str(path)], check=True, timeout=300)
    query, key, value, _ = random_heads(2, 2, 10, 4)
    config = JatConfig(PairGraph(backend="sparse"), hop_weights=(0.5, 0.5))
    output = jump_attention(query, key, value, config=config)
    torch.testing.assert_close(torch.load(path), output, rtol=1e-12, atol=1e-12)
