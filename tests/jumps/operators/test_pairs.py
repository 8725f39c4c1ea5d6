"""Operators of pairs keep the contract: A as a matrix, in blocks of rows, as edges, by ranking."""

from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import jat_graph.jumps.operators.threshold
from jat_graph import JatConfig, PairGraph, jump_operator
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import MapScores, QueryKeyScores
from jat_graph.operators import (
    BlockedOperator,
    DenseOperator,
    NormalizedOperator,
    Operator,
    SparseOperator,
    ThresholdOperator,
)
from jat_graph.testing import OperatorContract
from tests.inputs import random_heads
from tests.oracles import reference_adjacency, reference_graph
from tests.support import assert_equal, count_operations, needs_torch_sparse


class PairsContract(OperatorContract):
    """A, as ``create`` makes an operator of votes by some settings, in blocks of some sizes."""

    create: Any
    settings: ClassVar[dict[str, Any]] = {}
    sizes: ClassVar[dict[str, int]] = {}
    causal = False

    @pytest.fixture(autouse=True)
    def _set_sizes(self, monkeypatch):
        for name, size in self.sizes.items():
            monkeypatch.setattr(jat_graph.jumps.operators.threshold, name, size)

    def create_inputs(self):
        return random_heads(2, 3, 12, 8, is_causal=self.causal)[:2]

    def create_operator(self, query, key):
        config, source = JatConfig.paper(**self.settings), QueryKeyScores(query, key, 8**-0.5)
        mask = TokenMask(causal=self.causal)
        return type(self).create(PairAdjacency.of_scores(config, source, mask))

    def dense_truth(self, query, key):
        return reference_graph(query, key, is_causal=self.causal, **self.settings).adjacency


# Gradients reach queries and keys; the sign gate keeps the graph from being complete.
SOFT = {"soft_temperature": 0.7, "same_sign_only": True, "key_selection": "strided", "num_keys": 1}


class TestDenseOperator(PairsContract):
    create = DenseOperator.of_pairs


class TestSoftDenseOperator(TestDenseOperator):
    settings = SOFT


class TestBlockedOperator(PairsContract):
    causal = True
    create = BlockedOperator


class TestSmallBlocks(TestBlockedOperator):
    """A few queries at a time, and scores that are computed again, a few keys at a time."""

    sizes: ClassVar = {"KEPT_KEYS": 4, "BLOCK": 400}


class TestNormalizedDense(PairsContract):
    """Â, through one backend."""

    backend = "dense"

    def create_operator(self, query, key):
        config = JatConfig.paper(**self.settings, backend=self.backend)
        return jump_operator(query, key, config=config)

    def dense_truth(self, query, key):
        return reference_graph(query, key, **self.settings).adj_norm

    def test_the_base_is_the_adjacency(self):
        inputs = self.create_inputs()
        adjacency = reference_graph(*inputs, **self.settings).adjacency
        operator = self.create_operator(*inputs)
        assert_equal(operator.base.to_dense(), adjacency)
        assert_equal(operator.base.degree, adjacency.sum(-1))


class TestNormalizedSparse(TestNormalizedDense):
    backend = "sparse"


class TestNormalizedThreshold(TestNormalizedDense):
    backend = "threshold"


class TestSoftNormalized(TestNormalizedDense):
    """Gradients flow through the degrees, too."""

    settings = SOFT


def test_an_empty_graph_is_the_identity_to_the_bit():
    operator = NormalizedOperator(DenseOperator(torch.zeros(2, 3, 5, 5)))
    x = torch.randn(2, 3, 5, 4)
    assert torch.equal(operator.matmul(x), x)


def test_rows_that_sum_to_nothing_send_and_get_nothing():
    below = DenseOperator(-torch.ones(1, 1, 3, 3).triu(1))  # whose rows sum to -1, 0 and 1
    assert torch.equal(NormalizedOperator(below).to_dense()[0, 0], torch.tensor([0.0, 0, 1]).diag())


@pytest.mark.parametrize("soft_temperature", [None, 0.5])
@given(seed=st.integers(0, 999))
def test_an_adjacency_is_symmetric_to_the_bit(soft_temperature, seed):
    query, key, _, _ = random_heads(2, 2, 9, 4, dtype=torch.float32, seed=seed)
    config = JatConfig.paper(backend="dense", soft_temperature=soft_temperature)
    matrix = jump_operator(query, key, config=config).base.to_dense()
    assert matrix.count_nonzero() > 0
    assert torch.equal(matrix, matrix.mT)
    assert matrix.diagonal(dim1=-2, dim2=-1).count_nonzero() == 0


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


class TestSparseOperator(PairsContract):
    create = SparseOperator.of_pairs

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


class TestThresholdOperator(PairsContract):
    create = ThresholdOperator


class TestManyKeys(TestThresholdOperator):
    """Scores that are computed again for each product, a few keys at a time."""

    sizes: ClassVar = {"KEPT_KEYS": 4, "BLOCK": 200}


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**20),
    inclusive=st.booleans(),
    same_sign_only=st.booleans(),
    zeros=st.sampled_from((0.0, -0.0)),
)
def test_a_threshold_of_zero(seed, inclusive, same_sign_only, zeros):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-1, 2, (1, 1, 6, 6), generator=generator).double()
    scores = scores.masked_fill(scores == 0, zeros)
    config = JatConfig(PairGraph(threshold=0.0, inclusive=inclusive, same_sign_only=same_sign_only))
    mask = TokenMask(valid=torch.rand(1, 1, 6, generator=generator) < 0.7)
    operator = ThresholdOperator(PairAdjacency.of_scores(config, MapScores(scores), mask))
    truth = reference_adjacency(
        scores,
        0.0,
        pairs=mask.valid[..., None, :] & mask.valid[..., None],
        inclusive=inclusive,
        same_sign_only=same_sign_only,
    )
    torch.testing.assert_close(operator.to_dense(), truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", ["dense", "sparse", "threshold"])
@pytest.mark.parametrize("threshold", [0.0, 1e-46, 1e-30])
def test_tiny_thresholds_of_one_sign(backend, threshold):
    settings_ = {"inclusive": True, "same_sign_only": True, "threshold": threshold}
    query, key, _, _ = random_heads(1, 1, 6, 4, dtype=torch.float32)
    query[:, :, 2] = 0.0  # all its products are zero
    config = JatConfig.paper(backend=backend, **settings_)
    found = jump_operator(query, key, config=config).base.to_dense()
    wanted = reference_graph(query, key, **settings_).adjacency
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
