import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, PairGraph, jump_operator
from jat_graph.operators import DenseOperator, NormalizedOperator, laplacian_eigenvalues
from tests.inputs import random_heads
from tests.support import MemoryMeter


def normalized(adjacency):
    return NormalizedOperator(DenseOperator(adjacency[None, None]))


def dense_eigenvalues(operator):
    matrix = operator.to_dense()[0, 0].double()
    return torch.linalg.eigvalsh(torch.eye(len(matrix)) - matrix)


@given(
    length=st.integers(1, 40),
    number=st.integers(1, 7),
    density=st.sampled_from((0.05, 0.3, 0.9)),
    cliques=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_they_are_those_of_the_matrix_equal_ones_too(length, number, density, cliques, seed):
    generator = torch.Generator().manual_seed(seed)
    if cliques:  # of equal weights: most eigenvalues are there several times
        parts = torch.randint(4, (length,), generator=generator)
        upper = (parts[:, None] == parts).double().triu(1)
    else:
        upper = torch.rand(length, length, generator=generator, dtype=torch.float64).triu(1)
        upper = torch.where(upper > 1 - density, upper, 0.0)
    operator = normalized(upper + upper.T)
    found = laplacian_eigenvalues(operator, number)
    assert found.shape == (min(number, length),)
    torch.testing.assert_close(found, dense_eigenvalues(operator)[:number], rtol=0, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_jump_operators_have_them_and_repeat_to_the_bit(dtype):
    query, key, _, _ = random_heads(1, 1, 50, 8, dtype=dtype)
    operator = jump_operator(query, key, config=JatConfig(PairGraph(threshold=3.0)))
    found = laplacian_eigenvalues(operator, 4)
    assert found.dtype == dtype
    assert torch.equal(found, laplacian_eigenvalues(operator, 4))
    wanted = dense_eigenvalues(operator)[:4]
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=tolerance)
    assert 0.1 < found[1] < 0.9


def test_no_matrix_is_made(monkeypatch):
    monkeypatch.setattr("jat_graph.jumps.kernels.threshold_product.BLOCK", 512)
    query, key, _, _ = random_heads(1, 1, 300, 4)
    config = JatConfig(
        PairGraph(threshold=0.5, backend="threshold", key_selection="strided", num_keys=4)
    )
    operator = jump_operator(query, key, config=config)
    with MemoryMeter() as meter:
        found = laplacian_eigenvalues(operator, 3)
    assert meter.largest < 300**2 / 4
    torch.testing.assert_close(found, dense_eigenvalues(operator)[:3], rtol=0, atol=1e-8)


def test_bad_input_gives_one_clear_line():
    query, key, _, _ = random_heads(1, 1, 8, 4)
    with pytest.raises(ValueError, match="adj_norm must be symmetric, got one whose"):
        laplacian_eigenvalues(jump_operator(query, key, config=JatConfig(), is_causal=True))
    with pytest.raises(ValueError, match="number must be at least 1, got 0"):
        laplacian_eigenvalues(jump_operator(query, key, config=JatConfig()), 0)
    query, key, _, _ = random_heads(1, 2, 8, 4)
    with pytest.raises(ValueError, match=r"adj_norm must be \[1, 1, L, L\], got \[1, 2, 8, 8\]"):
        laplacian_eigenvalues(jump_operator(query, key, config=JatConfig()))
