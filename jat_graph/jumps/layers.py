"""Layers of PyG in heads: they stand where Â would multiply, on one batch of the heads' graphs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor, nn

from jat_graph.core.masks import TokenMask
from jat_graph.jumps.config import JatConfig
from jat_graph.jumps.external_graphs import ATTRIBUTES, GivenEdges, check_numbers
from jat_graph.jumps.operators import NormalizedOperator, Operator, StoneOperator


@dataclass(frozen=True)
class HeadGraphs:
    """The graphs of some heads as one, whose nodes are all their tokens but padding."""

    num_nodes: int  # N
    edge_index: Tensor  # [2, E], rows (source, target) by target; with stones (token, stone)
    edge_weight: Tensor  # [E]
    nodes: Tensor | None  # their indices among all tokens, [N]; None if no token is padding
    given: GivenEdges | None = None  # those of a graph from outside, one by one

    @classmethod
    def of(cls, operator: Operator, valid: Tensor | None, on_stones: bool) -> HeadGraphs:
        """Return the graphs of an operator: A of Â, or the links of P."""
        if on_stones:
            assert isinstance(operator, StoneOperator)
            links = operator.links.flatten(0, 1)  # [B · H, L, U]
            graph, row, column = links.nonzero(as_tuple=True)
            token, stone = graph * links.size(1) + row, graph * links.size(2) + column
            weight = links[graph, row, column]
        else:
            base = operator.base if isinstance(operator, NormalizedOperator) else operator
            (token, stone), weight = base.to_edge_index()
        given = getattr(getattr(operator, "base", None), "given", None)
        if valid is None:
            index = torch.stack([token, stone])
            return cls(operator.shape[:3].numel(), index, weight, None, given)
        valid = valid.expand(operator.shape[:3]).flatten()
        number = valid.cumsum(0) - 1
        if not on_stones:
            stone = number[stone]
        nodes = valid.nonzero().squeeze(-1)
        if given is not None:
            given = given.at(number[given.edge_index], slice(None))
        return cls(len(nodes), torch.stack([number[token], stone]), weight, nodes, given)

    @cached_property
    def matrix(self) -> Tensor:
        """Return the graph of pairs as PyG's ``adj_t`` in CSR, ``[N, N]``."""
        from jat_graph.jumps.operators.sparse import csr_matrix  # PyG takes seconds to load

        return csr_matrix(self.edge_index, self.edge_weight, self.num_nodes)


class HeadConvs(nn.Module):
    """The layers that queries, keys and values of some heads go through: one for all, or each."""

    def __init__(
        self,
        made: nn.Module | Sequence[nn.Module],  # one, two for queries and keys, or three
        config: JatConfig,
    ) -> None:
        super().__init__()
        layers = list(made) if isinstance(made, Sequence | nn.ModuleList) else [made]
        for layer in layers:
            _check_layer(layer, config.jump_graph.kind)
        self.layers, self.on_stones = nn.ModuleList(layers), config.jump_graph.kind == "stones"
        self.takes = {name for layer in layers for name in _taken(layer)}
        if not 1 <= len(self.layers) <= 3:
            raise ValueError(f"conv must give one, two or three layers, got {len(self.layers)}")
        if len(self.layers) == 2 and any(triple[-1] != 0 for triple in config.strengths()):
            wanted = "for queries and keys: the strength of values must be 0"
            raise ValueError(f"conv gave two layers, {wanted}, got {config.strength!r}")

    def try_on(self, size: int) -> None:
        """Refuse what cannot be called on heads of a size, by a copy on two joined tokens."""
        index, ones = torch.tensor([[0, 1], [1, 0]]), torch.ones(2)
        trial = deepcopy(self).eval()
        for side, layer in enumerate(trial.layers):
            attr = torch.ones(2, _edge_dim(layer) or 1)
            given = GivenEdges(index, ones, torch.zeros_like(index[0]), attr)
            graphs = HeadGraphs(2, index, ones, None, given)
            try:
                with torch.no_grad():
                    trial(side, torch.zeros(2, size), graphs)
            except (TypeError, RuntimeError, AssertionError, AttributeError, IndexError) as error:
                why = (str(error).splitlines() or [type(error).__name__])[0]
                wanted = f"layers to call on heads of size {size} and a graph"
                got = f"{type(layer).__name__}: {why}"
                raise ValueError(f"conv must give {wanted}, got {got}") from error

    def hops(
        self, operator: Operator, mask: TokenMask, near: dict[int, Tensor], highest: int
    ) -> Iterator[dict[int, Tensor]]:
        """Yield features ``[B, H, L, D]`` of each side for each hop; padding keeps its own."""
        if mask.causal:
            self._check_causal()
        graphs = HeadGraphs.of(operator, mask.valid, self.on_stones)
        yield near
        for _ in range(highest):
            after = {}
            for side, x in near.items():
                flat, nodes = x.flatten(0, 2), graphs.nodes
                y: Tensor = self(side, flat if nodes is None else flat[nodes], graphs).to(x.dtype)
                after[side] = (y if nodes is None else flat.index_copy(0, nodes, y)).view_as(x)
            near = after
            yield near

    def _check_causal(self) -> None:
        """Refuse what would look ahead: all tokens of a hyperedge, and edges the other way."""
        if self.on_stones:
            raise ValueError(
                "a layer on stones would use later tokens in causal order; use graph='pairs'"
            )
        for layer in self.layers:
            if any(getattr(m, "flow", "") == "target_to_source" for m in layer.modules()):
                wanted = "not have flow='target_to_source' in causal order"
                raise ValueError(f"{type(layer).__name__} must {wanted}")

    def forward(self, side: int, x: Tensor, graphs: HeadGraphs) -> Tensor:  # [N, D]
        """Return what the layer of queries, of keys or of values makes of them."""
        layer = self.layers[side if len(self.layers) > 1 else 0]
        edges = graphs.given or GivenEdges(graphs.edge_index, graphs.edge_weight)
        attributes = _attributes_for(layer, edges, x.dtype)
        names = _positional(type(layer).forward)
        takes = "*" in names or (*names, None, None, None)[2] not in NO_WEIGHTS
        # Products by a matrix are several times as fast, but not the gradient of its entries.
        if attributes:
            weights = [edges.edge_weight.to(x.dtype)] * (takes and "edge_weight" not in attributes)
            y: Tensor = layer(x, edges.edge_index, *weights, **attributes)
        elif not graphs.edge_weight.requires_grad and _takes_matrix(layer, x, graphs):
            y = layer(x, graphs.matrix)
        else:
            weights = [graphs.edge_weight.to(x.dtype)] * takes
            y = layer(x, graphs.edge_index, *weights)
        if not isinstance(y, Tensor) or y.shape != x.shape:
            got = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(f"{type(layer).__name__} must give features {[*x.shape]}, got {got}")
        return y


# Layers of PyG to which a matrix is what edges and their weights are.
MULTIPLYING = (
    "APPNP",
    "GCNConv",
    "GatedGraphConv",
    "GraphConv",
    "LGConv",
    "MixHopConv",
    "SGConv",
    "SSGConv",
    "SimpleConv",
    "TAGConv",
)


def _takes_matrix(layer: nn.Module, x: Tensor, graphs: HeadGraphs) -> bool:
    """Tell whether a layer, ours or one of PyG's that add up, takes CSR for these features."""
    if hasattr(layer, "takes_matrix"):
        return bool(layer.takes_matrix)
    kind = type(layer)
    if kind.__name__ not in MULTIPLYING or kind.__module__.split(".")[0] != "torch_geometric":
        return False
    adds = layer.aggr in ("add", "sum") and layer.flow == "source_to_target"
    # Sparse products are of one precision, which ours see to by themselves.
    alike = x.dtype == graphs.edge_weight.dtype and not torch.is_autocast_enabled(x.device.type)
    return adds and alike


# What PyG's layers take in the place of weights: one for each hyperedge, which no link has, the
# sizes of two kinds of nodes, kinds and features of edges, and edges that are none.
NO_WEIGHTS = (None, "edge_attr", "hyperedge_weight", "size", "edge_type", "neg_edge_index")


def _taken(layer: nn.Module) -> list[str]:
    """Name what a layer takes of edges beside weights; features only if it was made with some."""
    names, lacks = _positional(type(layer).forward, by_name=True)[2:], _edge_dim(layer) is None
    return [name for name in ATTRIBUTES if name in names and not (lacks and name == "edge_attr")]


def _edge_dim(layer: nn.Module) -> int | None:
    """Return how many features of an edge a layer was made with; some of PyG's keep a product."""
    gine = "GINEConv" in (kind.__name__ for kind in type(layer).__mro__)
    size = getattr(getattr(layer, "lin" if gine else "lin_edge", None), "in_channels", -1)
    return getattr(layer, "edge_dim", size if size > 0 else None)  # -1 of one that is yet to know


def _attributes_for(layer: nn.Module, edges: GivenEdges, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return what a layer takes of edges, by name; nothing if it is weights alone."""
    takes, kind, name = _taken(layer), edges.edge_type, type(layer).__name__
    found: dict[str, Tensor] = {}
    cure = "; jat_graph.using_graphs gives heads a graph"
    forward, wanted = type(layer).forward, "edge_weight"
    if wanted in _positional(forward, True) and (takes or wanted not in _positional(forward)):
        found[wanted] = edges.edge_weight.to(dtype)
    if "edge_attr" in takes:
        width, attr = _edge_dim(layer), edges.edge_attr
        if attr is None and width == 1:
            attr = edges.edge_weight.unsqueeze(-1)
        if attr is None or attr.shape[1:] != (width,):
            got = f"none{cure}" if attr is None else f"[E, {str([*attr.shape[1:]])[1:]}"
            raise ValueError(f"graph must have edge_attr [E, {width}] for {name}, got {got}")
        found["edge_attr"] = attr.to(dtype)
    if "edge_type" in takes:
        number: Any = getattr(layer, "num_relations", None)
        if kind is None and number == 1:
            kind = torch.zeros_like(edges.edge_index[0])
        if kind is None:
            raise ValueError(f"graph must have edge_type [E] for {name}, got none{cure}")
        if number is not None:
            check_numbers("edge_type", kind, number)
        found["edge_type"] = kind
    return found


@cache
def _positional(forward: Callable[..., Any], by_name: bool = False) -> tuple[str, ...]:
    """Name what a layer takes by position, or by name, too; ``*`` stands for any number."""
    parameters = list(inspect.signature(forward).parameters.values())[1:]  # itself left out
    return tuple(
        "*" if entry.kind is entry.VAR_POSITIONAL else entry.name
        for entry in parameters
        if entry.kind is not entry.VAR_KEYWORD and (by_name or entry.kind is not entry.KEYWORD_ONLY)
    )


def _check_layer(layer: object, graph: str) -> None:
    if not isinstance(layer, nn.Module):
        raise ValueError(f"conv must give modules, got {type(layer).__name__}")
    names = _positional(type(layer).forward)
    if "edge_index" in names[2:]:
        raise ValueError(
            f"conv must be called as conv(x, edge_index, edge_weight), but {type(layer).__name__} "
            f"takes {', '.join(names)}; PyG's Sequential can call it"
        )
    wanted, other = "edge_index", "hyperedge_index"
    if graph == "stones":
        wanted, other = other, wanted
    if other in names[:2]:
        instead = "pairs" if graph == "stones" else "stones"
        got = f"{type(layer).__name__} takes {other}; use graph={instead!r}"
        raise ValueError(f"a layer on {graph} must take {wanted}, but {got}")
