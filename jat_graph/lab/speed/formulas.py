"""The other sides of the kernels: the same results in the ways one would otherwise use."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Formula = Callable[[Tensor, Tensor, float], Tensor]

# One expression, the sum over keys of X_ij X_kj > ρ, as it may be put to the compiler. Scores come
# with the key last, columns with the key first. Inductor fuses each into one loop without L×L×L,
# and how fast that loop is depends on what is summed and along which dimension.
FORMULATIONS: Mapping[str, Formula] = {
    "keys last, sum of bools": lambda scores, columns, threshold: (
        scores[:, :, None, :] * scores[:, None, :, :] > threshold
    ).sum(-1),
    "keys last, sum of floats": lambda scores, columns, threshold: (
        (scores[:, :, None, :] * scores[:, None, :, :] > threshold).float().sum(-1)
    ),
    "keys first, sum of int32": lambda scores, columns, threshold: (
        columns[:, :, :, None] * columns[:, :, None, :] > threshold
    ).sum(1, dtype=torch.int32),
}
AS_WRITTEN = "keys last, sum of bools"


def compile_formula(name: str) -> Formula:  # [H, L, U], [H, U, L]
    """Return one of the formulations under ``torch.compile``."""
    compiled: Formula = torch.compile(FORMULATIONS[name], fullgraph=True, dynamic=False)
    return compiled


def missing_compiler(device: torch.device) -> str:
    """Say what ``torch.compile`` lacks here."""
    if device.type == "cuda":
        found = importlib.util.find_spec("triton") is not None
        return "" if found else "torch.compile needs triton, which is not installed"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "torch.compile needs a C++ compiler, and there is none"
    return ""


def sum_by_csr(
    counts: Tensor,  # The adjacency [1, H, L, L]
    features: Tensor,  # [1, H, L, D]
) -> Callable[[], Tensor]:
    """Return the product of an explicit adjacency with features, by a torch CSR matrix."""
    matrix, flat = _block_diagonal(counts), features.flatten(0, 2)
    return lambda: (matrix @ flat).view_as(features)


def sum_by_torch_sparse(
    counts: Tensor,  # The adjacency [1, H, L, L]
    features: Tensor,  # [1, H, L, D]
) -> Callable[[], Tensor]:
    """Return the product of an explicit adjacency with features, by torch_sparse."""
    from torch_sparse import SparseTensor

    if counts.is_cuda and torch.ops.torch_sparse.cuda_version() < 0:
        raise ImportError("torch_sparse was built without CUDA")
    csr = _block_diagonal(counts)
    matrix = SparseTensor(
        rowptr=csr.crow_indices(),
        col=csr.col_indices(),
        value=csr.values(),
        sparse_sizes=tuple(csr.shape),
        is_sorted=True,
        trust_data=True,
    )
    flat = features.flatten(0, 2)
    return lambda: (matrix @ flat).view_as(features)


def sum_by_scatter(
    counts: Tensor,  # The adjacency [1, H, L, L]
    features: Tensor,  # [1, H, L, D]
) -> Callable[[], Tensor]:
    """Return the product of an explicit adjacency with features, edge by edge, by PyG's scatter."""
    from torch_geometric.utils import scatter

    flat, length = features.flatten(0, 2), features.size(2)
    graph, target, source = counts.flatten(0, 1).nonzero(as_tuple=True)
    weight = counts.flatten(0, 1)[graph, target, source].unsqueeze(-1)
    target, source = graph * length + target, graph * length + source

    def multiply() -> Tensor:
        messages = flat[source].mul_(weight)
        total: Tensor = scatter(messages, target, dim=0, dim_size=len(flat), reduce="sum")
        return total.view_as(features)

    return multiply


def _block_diagonal(counts: Tensor) -> Tensor:
    """Return the adjacency of all heads as one CSR matrix ``[H·L, H·L]``."""
    from torch_geometric.utils import to_torch_csr_tensor

    heads, length, _ = counts.flatten(0, 1).shape
    graph, target, source = counts.flatten(0, 1).nonzero(as_tuple=True)
    weight = counts.flatten(0, 1)[graph, target, source]
    index = torch.stack([graph * length + target, graph * length + source])
    size = heads * length
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)  # that CSR is in beta
        matrix: Tensor = to_torch_csr_tensor(index, weight, (size, size), is_coalesced=True)
    return matrix
