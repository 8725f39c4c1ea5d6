"""Graphs from outside in the place of the heads' own: in every form of PyG, as an operator."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from jat_graph.core.masks import TokenMask
from jat_graph.core.tensors import flat_weights
from jat_graph.jumps.adjacency.scores import score_dtype
from jat_graph.jumps.operators.base import NormalizedOperator, Operator
from jat_graph.jumps.operators.sparse import SparseOperator, csr_matrix

if TYPE_CHECKING:
    from torch_geometric.data import Batch, Data
    from torch_geometric.typing import SparseTensor

Graph: TypeAlias = (
    "Operator | Data | Batch | SparseTensor | Tensor | tuple[Tensor, Tensor] | list[Data]"
)

ATTRIBUTES = ("edge_type", "edge_attr")  # what layers may take of edges beside their weights


class GivenEdges(NamedTuple):
    """Edges as they were given, and what layers of PyG take of each."""

    edge_index: Tensor  # [2, E], rows (source, target)
    edge_weight: Tensor  # [E]
    edge_type: Tensor | None = None  # [E]
    edge_attr: Tensor | None = None  # [E, F]

    def at(self, edge_index: Tensor, which: Tensor | slice) -> GivenEdges:
        """Return some edges, by their numbers or a mask, between nodes that are now so numbered."""
        kind, attr = (None if x is None else x[which] for x in self[2:])
        return GivenEdges(edge_index, self.edge_weight[which], kind, attr)


def read_graph(
    graph: Graph,
    query: Tensor,  # [B, H, L, D]
    mask: TokenMask,
    heads: tuple[int, ...],  # what graphs of single heads call these
    takes: Collection[str] = (),  # which of ATTRIBUTES the layers of the heads take
) -> Operator:
    """Return a given graph as Â, and an operator as it is."""
    from torch_geometric.utils import coalesce  # PyG takes seconds to load

    shape = torch.Size((*query.shape[:3], query.size(2)))
    if isinstance(graph, Operator):
        if graph.shape != shape:
            raise ValueError(f"graph must be {list(shape)}, got {list(graph.shape)}")
        base = graph.base if isinstance(graph, NormalizedOperator) else graph
        index, _ = base.to_edge_index()
        _check_sight(index[:, index[0] != index[1]], shape, mask)
        return graph
    edges = _read_edges(graph, shape, mask, heads, takes)
    weight = edges.edge_weight.to(score_dtype(query, query))
    given = (edges.edge_index, weight, *edges[2:])
    edges = GivenEdges(*(x if x is None else x.to(query.device) for x in given))  # type: ignore[arg-type]
    apart = edges.edge_index[0] != edges.edge_index[1]  # Â has loops of its own
    edges = edges.at(edges.edge_index[:, apart], apart)
    if not bool((edges.edge_weight.isfinite() & (edges.edge_weight >= 0)).all()):
        raise ValueError("graph must have finite weights of at least 0, got other weights")
    _check_sight(edges.edge_index, shape, mask)
    by_target, weight = coalesce(edges.edge_index.flip(0), edges.edge_weight, shape[:3].numel())
    matrix = csr_matrix(by_target.flip(0), weight, shape[:3].numel())
    return NormalizedOperator(SparseOperator(matrix, shape, edges))


def _read_edges(
    graph: Any, shape: torch.Size, mask: TokenMask, heads: tuple[int, ...], takes: Collection[str]
) -> GivenEdges:
    """Return the edges over the tokens of all sequences and heads, number (b · H + h) · L + i."""
    from torch_geometric.data import Batch
    from torch_geometric.typing import SparseTensor
    from torch_geometric.utils import is_torch_sparse_tensor, to_edge_index

    if isinstance(graph, list) and graph:
        for one in graph:  # before a node that one lacks becomes a node of the next
            edges_of(one, takes)
        for name in (*takes, "edge_index", "edge_weight", "edge_attr", "token"):
            if len({getattr(one, name, None) is None for one in graph}) > 1:
                raise ValueError(f"graph must have {name} in all of its graphs, or in none")
        graph = Batch.from_data_list(graph)
    if has_edges(graph):
        return _of_batch(graph, shape, mask, heads, takes)
    if isinstance(graph, SparseTensor) or is_torch_sparse_tensor(graph):
        edges, weight = to_edge_index(graph)  # rows (target, source)
        return _of_tokens(edges.flip(0), weight, (graph.size(0), graph.size(1)), shape)
    edges, weight = graph if isinstance(graph, tuple) and len(graph) == 2 else (graph, None)
    if not isinstance(edges, Tensor) or edges.dim() != 2 or edges.size(0) != 2:
        raise ValueError(
            "graph must be a Batch of PyG, a list of Data, edge_index [2, E], (edge_index, "
            f"edge_weight), a sparse matrix or an operator, got {found_graph(graph)}"
        )
    tokens = shape[0] * shape[2]
    weight = flat_weights("edge_weight", weight, edges.size(1))
    weight = torch.ones(edges.size(1), device=edges.device) if weight is None else weight
    return _of_tokens(edges, weight, (tokens, tokens), shape)


def _of_tokens(
    edges: Tensor, weight: Tensor, size: tuple[int, int], shape: torch.Size
) -> GivenEdges:
    """Return edges between the tokens of one sequence, of all, or of all heads, for all heads."""
    batch, heads, length, _ = shape
    copies = {length: batch * heads, batch * length: heads, batch * heads * length: 1}
    number = size[0]
    if size[0] != size[1] or number not in copies:
        wanted = " or ".join(f"[{n}, {n}]" for n in dict.fromkeys(copies))
        raise ValueError(f"graph must be a matrix {wanted} of tokens, got {list(size)}")
    check_numbers("edge_index", edges, number)
    copy = torch.arange(copies[number], device=edges.device).view(-1, 1, 1)
    if number == batch * length and batch > 1:  # the heads of a sequence follow each other
        copied = (edges // length * heads + copy) * length + edges % length  # [H, 2, E]
    else:
        copied = edges + copy * number
    return GivenEdges(copied.transpose(0, 1).flatten(1), weight.repeat(len(copied)))


def _of_batch(
    graph: Any, shape: torch.Size, mask: TokenMask, heads: tuple[int, ...], takes: Collection[str]
) -> GivenEdges:
    """Return the edges of graphs of sequences, for all heads, or of sequences and heads."""
    # By the numbers of their nodes: edges may have been changed since the graphs were batched.
    batch, number, length, _ = shape
    edges = edges_of(graph, takes)
    device = edges.edge_index.device
    start = graph.ptr if "ptr" in graph else torch.tensor([0, graph.num_nodes], device=device)
    sizes, by_head = start.diff(), "head" in graph and "sequence" in graph
    if by_head:
        given = graph.sequence, graph.head
        sequence, head = (torch.as_tensor(x).view(-1).to(device) for x in given)
    else:
        sequence, head = torch.arange(len(sizes), device=device), None
    if int(sequence.max()) >= batch or (not by_head and len(sizes) != batch):
        raise ValueError(f"graph must hold a graph for each of {batch} sequences, got {len(sizes)}")
    first = (sequence * number * length).repeat_interleave(sizes)  # position of its sequence
    tokens = first + _tokens(graph, sequence, sizes, mask, shape)
    if head is None:
        copies = torch.arange(number, device=device).view(-1, 1, 1) * length
        copied = (tokens[edges.edge_index] + copies).transpose(0, 1).flatten(1)
        return edges.at(copied, torch.arange(len(edges.edge_weight), device=device).repeat(number))
    indices = torch.full((max(int(head.max()), *heads) + 1,), -1, device=device)
    indices[list(heads)] = torch.arange(number, device=device)
    index = indices[head].repeat_interleave(sizes)
    found = (sequence * number + indices[head])[indices[head] >= 0].tolist()
    if sorted(found) != [*range(batch * number)]:
        wanted = f"one graph for each of {batch} sequences and each of heads {list(heads)}"
        raise ValueError(f"graph must have {wanted}, got {len({*found})} and {len(found)} in all")
    kept = index[edges.edge_index[0]] >= 0
    return edges.at((tokens + index * length)[edges.edge_index[:, kept]], kept)


def _tokens(
    graph: Any, sequence: Tensor, sizes: Tensor, mask: TokenMask, shape: torch.Size
) -> Tensor:  # [N]
    """Return the position of each node in its sequence, by those and the sizes of graphs, [G]."""
    batch, _, length, _ = shape
    if "token" in graph:
        token: Tensor = graph.token
        check_numbers("token", token, length)
        return token
    valid = torch.ones(1, 1, length, dtype=torch.bool) if mask.valid is None else mask.valid
    valid = valid.expand(batch, -1, -1)[:, 0].to(sizes.device)[sequence]  # [G, L]
    wrong = (valid.sum(-1) != sizes).nonzero()
    if len(wrong):
        own = int(wrong[0])
        wanted = f"its {int(valid[own].sum())} tokens as nodes, or name them by `token`"
        name = f"graph of sequence {int(sequence[own])}"
        raise ValueError(f"{name} must have {wanted}, got {int(sizes[own])} nodes")
    return valid.nonzero()[:, 1]


def has_edges(graph: Any) -> bool:
    """Tell whether something is a graph of PyG, of one kind of nodes, with edges."""
    from torch_geometric.data import Data

    return isinstance(graph, Data) and (graph.edge_index is not None or "adj_t" in graph)


def found_graph(graph: object) -> str:
    """Name what came in the place of a graph, and what makes a graph of it."""
    from torch_geometric.data import Data, HeteroData

    name, foreign = type(graph).__name__, type(graph).__module__.startswith("networkx.")
    if isinstance(graph, HeteroData):
        return f"{name}; its to_homogeneous() gives a Data"
    if foreign:
        return f"{name} of networkx; torch_geometric.utils.from_networkx gives a Data"
    if isinstance(graph, Data):
        return f"{name} without edges"
    return str(list(graph.shape)) if isinstance(graph, Tensor) else name


def edges_of(graph: Any, takes: Collection[str] = ()) -> GivenEdges:
    """Return the edges of a graph of PyG with their weights, wherever transforms have put them."""
    from torch_geometric.utils import to_edge_index

    if not has_edges(graph):
        wanted = "a Data of PyG with edge_index or adj_t"
        raise ValueError(f"graph must be {wanted}, got {found_graph(graph)}")
    if graph.edge_index is None:
        index, weight = to_edge_index(graph.adj_t)  # rows (target, source)
        index = index.flip(0)
    else:
        index, weight = graph.edge_index, None
        if not isinstance(index, Tensor) or index.dim() != 2 or index.size(0) != 2:
            got = list(index.shape) if isinstance(index, Tensor) else type(index).__name__
            raise ValueError(f"edge_index must be a tensor [2, E], got {got}")
        check_numbers("edge_index", index, graph.num_nodes)
    kind, attr = (getattr(graph, name, None) if name in takes else None for name in ATTRIBUTES)
    number = index.size(1)
    for name, value in zip(ATTRIBUTES, (kind, attr), strict=True):
        if value is not None and (not isinstance(value, Tensor) or len(value) != number):
            got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"{name} must be a tensor of {number} edges, got {got}")
    if kind is not None and (kind.dim() != 1 or kind.is_floating_point()):
        raise ValueError(f"edge_type must be integers [{number}], got {kind.dtype} {[*kind.shape]}")
    if attr is not None and not bool(attr.isfinite().all()):
        raise ValueError("edge_attr must be finite numbers, got others")
    attr = attr if attr is None or attr.dim() > 1 else attr[:, None]
    if weight is None:
        weight = flat_weights("edge_weight", getattr(graph, "edge_weight", None), number)
    if weight is None and attr is None:  # else it is for a layer
        weight = flat_weights("edge_attr", getattr(graph, "edge_attr", None), number)
    weight = torch.ones(number, device=index.device) if weight is None else weight
    return GivenEdges(index.long(), weight, kind if kind is None else kind.long(), attr)


def check_numbers(name: str, numbers: Tensor, end: int) -> None:
    """Refuse numbers of nodes or tokens that are not there."""
    if not isinstance(numbers, Tensor) or numbers.is_floating_point():
        got = getattr(numbers, "dtype", f"a {type(numbers).__name__}")
        raise ValueError(f"{name} must hold integers, got {got}")
    wrong = numbers[(numbers < 0) | (numbers >= end)]
    if len(wrong):
        raise ValueError(f"{name} must be in [0, {end}), got {int(wrong[0])}")


def _check_sight(edges: Tensor, shape: torch.Size, mask: TokenMask) -> None:
    """Refuse edges along which a token would see what it must not."""
    length = shape[2]
    source, target = edges % length
    graph = edges // length
    _refuse(graph[0] != graph[1], edges, shape, "between sequences or heads")
    if mask.causal:
        _refuse(source > target, edges, shape, "to the future")
    if mask.valid is not None:
        valid = mask.valid.expand(shape[:3]).flatten()
        _refuse(~(valid[edges[0]] & valid[edges[1]]), edges, shape, "of padding")
    if mask.pairs is not None:
        pairs = mask.pairs.expand(shape).flatten(0, 1)
        _refuse(~pairs[graph[1], target, source], edges, shape, "that the attention mask forbids")


def _refuse(wrong: Tensor, edges: Tensor, shape: torch.Size, what: str) -> None:
    if bool(wrong.any()):
        (source, target), (_, heads, length, _) = edges[:, wrong.nonzero()[0, 0]].tolist(), shape
        got = f"{source % length} → {target % length} in sequence {source // length // heads}"
        raise ValueError(f"graph must not have edges {what}, got {got}")
