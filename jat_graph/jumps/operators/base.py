"""What every operator can do; a new structure writes one method. A as a matrix, and Â."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from jat_graph.core.compiling import full_precision
from jat_graph.core.extras import import_extra
from jat_graph.core.numbers import check_integer
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.kernels import count_votes

# Keys up to which what is known of them is kept between products; beyond, it is made again.
KEPT_KEYS = 256
PROBES = 8  # vectors by whose products a matrix shows that it is not symmetric


class Operator(ABC):
    """A square matrix per sequence and head that multiplies features.

    A subclass gives ``shape``, ``dtype``, ``device`` and ``_matmul``; everything else is here. Sums
    accumulate in ``dtype``; results have the dtype of the features.
    """

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        """Return (A + diagonal · I) x, in ``self.dtype``."""

    def matmul(self, x: Tensor, diagonal: float = 0.0) -> Tensor:
        """Return (A + diagonal · I) x.

        Args:
            x: Features ``[B, H, L, D]``.
            diagonal: Weight of the self-loops to add. (default: 0.0)

        Returns:
            The product, in the dtype of ``x``.

        Raises:
            ValueError: If ``x`` does not fit.

        Shapes:
            - **output:** ``[B, H, L, D]``
        """
        if x.dim() != 4 or x.shape[:3] != self.shape[:3]:
            wanted = ", ".join(str(size) for size in self.shape[:3])
            raise ValueError(f"x must be [{wanted}, D], got {list(x.shape)}")
        with full_precision(self.device):
            return self._matmul(x.to(self.dtype), diagonal).to(x.dtype)

    @property
    def degree(self) -> Tensor:
        """Row sums of the matrix itself, ``[B, H, L]``, in ``dtype``."""
        ones = torch.ones(*self.shape[:3], 1, dtype=self.dtype, device=self.device)
        return self.matmul(ones).squeeze(-1)

    def to_dense(self) -> Tensor:
        """Return the matrix, ``[B, H, L, L]``, in ``dtype``."""
        eye = torch.eye(self.shape[-1], dtype=self.dtype, device=self.device)
        return self.matmul(eye.expand(self.shape))

    def to_edge_index(self) -> tuple[Tensor, Tensor]:
        """Return the non-zero entries as one PyG graph over all sequences and heads.

        Returns:
            ``edge_index`` ``[2, E]`` with rows (source k, target i), node number
            ``(b · H + h) · L + position``; and ``edge_weight`` ``[E]``.
        """
        matrix = self.to_dense().flatten(0, 1)
        graph, target, source = matrix.nonzero(as_tuple=True)
        offset = graph * self.shape[-1]
        weight = matrix[graph, target, source]
        return torch.stack([offset + source, offset + target]), weight


class DenseOperator(Operator):
    """An operator that holds its matrix: best for short inputs, and for every mask.

    Args:
        adjacency: ``[B, H, L, L]``, float32 or float64.
    """

    def __init__(self, adjacency: Tensor) -> None:
        self.adjacency = adjacency
        self.shape, self.dtype, self.device = adjacency.shape, adjacency.dtype, adjacency.device

    @classmethod
    def of_pairs(cls, pairs: PairAdjacency) -> DenseOperator:
        """Count the votes for every pair: A of Eq. 3."""
        voters = pairs.voters().unsqueeze(-1)
        if pairs.rule.soft_temperature is not None:
            return cls(pairs.soft_votes() / voters)
        # In place: another L×L of every head would cost as much as some of the counting.
        shares = count_votes(*pairs.columns()).div_(voters)
        pairs.clear_masked(shares, slice(0, shares.size(-1)))
        return cls(shares)

    @property
    def degree(self) -> Tensor:
        return self.adjacency.sum(-1)

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        return self.adjacency @ x + diagonal * x

    def to_dense(self) -> Tensor:
        return self.adjacency


class NormalizedOperator(Operator):
    r"""Â = D̃^-½ (A + I) D̃^-½, D̃ the row sums of A + I.

    Args:
        base: A, ``[B, H, L, L]``, without self-loops.

    Reference:
        Eq. 4 of the JAT paper; Kipf & Welling, *Semi-Supervised Classification with Graph
        Convolutional Networks*, ICLR 2017, Eq. 2.
    """

    def __init__(self, base: Operator) -> None:
        self.base = base
        self.shape, self.dtype, self.device = base.shape, base.dtype, base.device
        degree = (base.degree + 1).unsqueeze(-1)  # [B, H, L, 1]
        # Negative weights may leave sums without a root: 0, as in GCN.
        self.scale = degree.masked_fill(degree <= 0, torch.inf).rsqrt()

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        y = self.base.matmul(self.scale * x, diagonal=1.0).mul_(self.scale)
        return y if diagonal == 0 else y + diagonal * x

    def to_dense(self) -> Tensor:
        loops = torch.eye(self.shape[-1], dtype=self.dtype, device=self.device)
        return (self.base.to_dense() + loops) * self.scale.mT * self.scale


Product = Callable[[Tensor, bool], Tensor]  # of features, with a matrix or with its transpose


def recompute(product: Product, x: Tensor, transposed: bool) -> Tensor:
    """Multiply, and keep nothing for the backward pass but how to multiply by the transpose."""
    result: Tensor = _Recomputed.apply(x, product, transposed)  # type: ignore[no-untyped-call]
    return result


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, product: Product, transposed: bool) -> Tensor:
        ctx.product, ctx.transposed = product, transposed
        return product(x, transposed)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return recompute(ctx.product, grads[0], not ctx.transposed), None, None


def laplacian_eigenvalues(adj_norm: Operator, number: int = 2) -> Tensor:
    r"""Return the smallest eigenvalues of the Laplacian I − Â of one graph, without its matrix.

    The first is 0, as many are as the graph has components; all are at most 2. The second is the
    gap: the larger it is, the faster powers of Â make the features of tokens alike. Needs scipy.

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
    # Vectors that lean towards no eigenvector, always the same; each is a column.
    length = adj_norm.shape[-1]
    probes = torch.randn(PROBES, length, generator=torch.Generator().manual_seed(0))
    probes = probes.to(adj_norm.device, adj_norm.dtype).mT[None, None]
    probe, gram = probes[..., :1], probes.mT @ adj_norm.matmul(probes)
    if not torch.allclose(gram, gram.mT, rtol=1e-4, atol=1e-5 * length**0.5):
        raise ValueError("adj_norm must be symmetric, got one whose rows and columns differ")
    if number >= length - 1:
        values: Tensor = torch.linalg.eigvalsh(adj_norm.to_dense()[0, 0]).flip(0)[:number]
    else:
        values = probe.new_tensor(_largest(adj_norm, number, probe))
    return 1 - values


def _largest(operator: Operator, number: int, start: Tensor) -> list[float]:
    """Return the largest eigenvalues, one after the other, so that equal ones are all found."""
    linalg = import_extra("scipy.sparse.linalg")
    vectors = start.new_empty(start.numel(), 0)
    found: list[float] = []

    def multiply(x: Any) -> Any:
        x = torch.from_numpy(x).to(start).view_as(start)
        product = operator.matmul(x).view(-1, 1)
        # All lie between -1 and 1: those that were found go below.
        return (product - 3 * vectors @ (vectors.mT @ x.view(-1, 1))).cpu().numpy()

    first = start.flatten().cpu().numpy()
    matrix = linalg.LinearOperator((len(first), len(first)), matvec=multiply, dtype=first.dtype)
    for _ in range(number):
        (value,), vector = linalg.eigsh(matrix, 1, which="LA", v0=first)
        vectors = torch.cat([vectors, torch.from_numpy(vector).to(start)], dim=-1)
        found.append(float(value))
    return found
