"""A as a list of edges: what PyG layers take, and exact on short inputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from jat_graph.adjacency.pairs import PairAdjacency
from jat_graph.operators.base import Operator
from jat_graph.operators.edges import vote_edges

if TYPE_CHECKING:
    from torch_geometric.typing import SparseTensor


class SparseOperator(Operator):
    """An operator that holds edges, as one block-diagonal matrix over all sequences and heads.

    Args:
        matrix: ``[B·H·L, B·H·L]``, rows are targets: a torch CSR tensor, or a
            ``torch_sparse.SparseTensor`` if given one.
        shape: ``(B, H, L, L)``.
    """

    def __init__(self, matrix: Tensor | SparseTensor, shape: torch.Size) -> None:
        self.matrix, self.shape = matrix, shape
        self.dtype = matrix.dtype if isinstance(matrix, Tensor) else matrix.dtype()
        self.device = matrix.device if isinstance(matrix, Tensor) else matrix.device()

    @classmethod
    def of_pairs(
        cls, pairs: PairAdjacency, min_weight: float = 0.0, max_neighbors: int | None = None
    ) -> SparseOperator:
        """Count the votes in blocks of queries and keep the pairs that have one.

        Args:
            pairs: Who votes on which pairs.
            min_weight: Drop edges of less weight. (default: 0.0)
            max_neighbors: Keep the heaviest edges into each node, and their reverse where it
                exists. (default: None, which keeps all)

        Returns:
            A of Eq. 3.
        """
        batch, heads, length = pairs.source.shape
        edges = vote_edges(pairs, min_weight, max_neighbors)
        shape = torch.Size((batch, heads, length, length))
        return cls.of_edges(edges.edge_index, edges.edge_weight, shape)

    @classmethod
    def of_edges(cls, edge_index: Tensor, edge_weight: Tensor, shape: torch.Size) -> SparseOperator:
        """Take a graph as :meth:`to_edge_index` gives it.

        Args:
            edge_index: Rows (source k, target i), ``[2, E]``, by target, then source, none twice.
            edge_weight: ``[E]``.
            shape: ``(B, H, L, L)``.

        Returns:
            The operator.
        """
        return cls(csr_matrix(edge_index, edge_weight, shape[:3].numel()), shape)

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        return self._multiply(self.matrix, x) + diagonal * x

    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        matrix = self.matrix.t()
        if isinstance(matrix, Tensor):
            with _beta_unsaid():
                matrix = matrix.to_sparse_csr()
        return self._multiply(matrix, x) + diagonal * x

    @staticmethod
    def _multiply(matrix: Tensor | SparseTensor, x: Tensor) -> Tensor:
        from torch_geometric.utils import spmm

        product: Tensor = spmm(matrix, x.flatten(0, 2))
        return product.view_as(x)

    def to_edge_index(self) -> tuple[Tensor, Tensor]:
        """Return the edges as one PyG graph over all sequences and heads.

        Returns:
            ``edge_index`` ``[2, E]`` with rows (source k, target i), node number
            ``(b · H + h) · L + position``; and ``edge_weight`` ``[E]``.
        """
        if isinstance(self.matrix, Tensor):
            edges = self.matrix.to_sparse_coo()  # type: ignore[no-untyped-call]
            return edges.indices().flip(0), edges.values()
        target, source, weight = self.matrix.coo()
        return torch.stack([source, target]), weight


def csr_matrix(
    edge_index: Tensor,  # [2, E], rows (source, target), by target, then source, none twice
    edge_weight: Tensor,  # [E]
    num_nodes: int,
) -> Tensor:  # [N, N]
    """Return a graph as PyG's ``adj_t``, a matrix whose rows are targets."""
    from torch_geometric.utils import to_torch_csr_tensor  # PyG takes seconds to load

    size = (num_nodes, num_nodes)
    with _beta_unsaid():
        matrix: Tensor = to_torch_csr_tensor(
            edge_index.flip(0), edge_weight, size, is_coalesced=True
        )
    return matrix


@contextmanager
def _beta_unsaid() -> Iterator[None]:
    """Keep torch from warning that CSR is in beta."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)
        yield
