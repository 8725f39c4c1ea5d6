"""Eigenvalues of a graph, found by products alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from jat_graph.checks.numbers import check_integer
from jat_graph.operators.base import Operator


def laplacian_eigenvalues(adj_norm: Operator, number: int = 2) -> Tensor:
    r"""Return the smallest eigenvalues of the Laplacian I − Â of one graph, without its matrix.

    The first is 0, as many are as the graph has components, and all are at most 2. The second one
    is the gap: powers of Â make the features of all tokens alike, the faster the larger it is.
    Needs scipy.

    Args:
        adj_norm: Â of one sequence and head, as :func:`jat_graph.jump_operator` gives it for pairs;
            symmetric, so that no causal mask was over it.
        number: How many. (default: 2)

    Returns:
        The eigenvalues, rising; all of them where there are no more than asked for.

    Raises:
        ValueError: If the operator is of several graphs or not symmetric, or the number below 1.

    Shapes:
        - **output:** ``[min(number, L)]``

    Reference:
        Chung, *Spectral Graph Theory*, 1997; Lehoucq, Sorensen and Yang, *ARPACK Users' Guide*,
        1998.
    """
    check_integer("number", number, least=1)
    if adj_norm.shape[:2] != (1, 1):
        raise ValueError(f"adj_norm must be [1, 1, L, L], got {list(adj_norm.shape)}")
    # A vector that leans towards no eigenvector, always the same.
    probe = torch.randn(adj_norm.shape[-1], generator=torch.Generator().manual_seed(0))
    probe = probe.to(adj_norm.device, adj_norm.dtype).view(1, 1, -1, 1)
    left, right = adj_norm.matmul(probe), adj_norm.rmatmul(probe)
    if not torch.allclose(left, right, rtol=1e-4, atol=1e-5):
        raise ValueError("adj_norm must be symmetric, got one whose rows and columns differ")
    if number >= adj_norm.shape[-1] - 1:
        values: Tensor = torch.linalg.eigvalsh(adj_norm.to_dense()[0, 0]).flip(0)[:number]
    else:
        values = probe.new_tensor(_largest(adj_norm, number, probe))
    return 1 - values


def _largest(operator: Operator, number: int, start: Tensor) -> list[float]:
    """Return the largest eigenvalues, one after the other, so that equal ones are all found."""
    from scipy.sparse.linalg import LinearOperator, eigsh  # of the extra 'examples'

    vectors = start.new_empty(start.numel(), 0)
    found: list[float] = []

    def multiply(x: Any) -> Any:
        x = torch.from_numpy(x).to(start).view_as(start)
        product = operator.matmul(x).view(-1, 1)
        # All lie between -1 and 1: those that were found go below.
        return (product - 3 * vectors @ (vectors.mT @ x.view(-1, 1))).cpu().numpy()

    first = start.flatten().cpu().numpy()
    matrix = LinearOperator((len(first), len(first)), matvec=multiply, dtype=first.dtype)
    for _ in range(number):
        (value,), vector = eigsh(matrix, 1, which="LA", v0=first)
        vectors = torch.cat([vectors, torch.from_numpy(vector).to(start)], dim=-1)
        found.append(float(value))
    return found
