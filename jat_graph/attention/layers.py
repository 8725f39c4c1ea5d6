"""Layers of PyG in heads: they stand where Â would multiply, on one batch of the heads' graphs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor, nn

from jat_graph.config import JatConfig
from jat_graph.masks.tokens import TokenMask
from jat_graph.operators import NormalizedOperator, Operator, StoneOperator


@dataclass(frozen=True)
class HeadGraphs:
    """The graphs of some heads as one, whose nodes are all their tokens but padding."""

    num_nodes: int  # N
    edge_index: Tensor  # [2, E], rows (source, target) by target; with stones (token, stone)
    edge_weight: Tensor  # [E]
    nodes: Tensor | None  # their indices among all tokens, [N]; None if no token is padding

    @classmethod
    def of(
        cls,
        operator: Operator,
        valid: Tensor | None,  # [B|1, H|1, L]
        on_stones: bool,
    ) -> HeadGraphs:
        """Return the graphs of an operator: A of Â, or the links of P."""
        if on_stones:
            assert isinstance(operator, StoneOperator)
            token, stone, weight = _links(operator.links.flatten(0, 1))
        else:
            base = operator.base if isinstance(operator, NormalizedOperator) else operator
            (token, stone), weight = base.to_edge_index()
        if valid is None:
            return cls(operator.shape[:3].numel(), torch.stack([token, stone]), weight, None)
        valid = valid.expand(operator.shape[:3]).flatten()
        number = valid.cumsum(0) - 1
        if not on_stones:
            stone = number[stone]
        nodes = valid.nonzero().squeeze(-1)
        return cls(len(nodes), torch.stack([number[token], stone]), weight, nodes)

    @cached_property
    def matrix(self) -> Tensor:
        """Return the graph of pairs as PyG's ``adj_t`` in CSR, ``[N, N]``."""
        from jat_graph.operators.sparse import csr_matrix  # PyG takes seconds to load

        return csr_matrix(self.edge_index, self.edge_weight, self.num_nodes)


def _links(links: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # [G, L, U]; [E] each
    graph, row, column = links.nonzero(as_tuple=True)
    _, length, stones = links.shape
    return graph * length + row, graph * stones + column, links[graph, row, column]


class HeadLayers(nn.Module):
    """The layers that queries, keys and values of some heads go through: one for all, or each."""

    def __init__(
        self,
        made: nn.Module | Sequence[nn.Module],  # one, two for queries and keys, or three
        config: JatConfig,
    ) -> None:
        super().__init__()
        layers = list(made) if isinstance(made, Sequence | nn.ModuleList) else [made]
        for layer in layers:
            _check_layer(layer, config.graph.kind)
        self.layers, self.on_stones = nn.ModuleList(layers), config.graph.kind == "stones"
        if not 1 <= len(self.layers) <= 3:
            raise ValueError(f"conv must give one, two or three layers, got {len(self.layers)}")
        if len(self.layers) == 2 and any(triple[-1] != 0 for triple in config.strengths()):
            raise ValueError(
                "conv gave two layers, for queries and keys: the strength of values must be 0, "
                f"got {config.strength!r}"
            )

    def try_on(self, size: int) -> None:
        """Refuse what cannot be called on heads of a size, by a copy on two joined tokens."""
        index = torch.tensor([[0, 1], [1, 0]])
        graphs = HeadGraphs(2, index, torch.ones(2), None)
        trial = deepcopy(self).eval()
        for side, layer in enumerate(trial.layers):
            try:
                with torch.no_grad():
                    trial(side, torch.zeros(2, size), graphs)
            except (TypeError, RuntimeError, AssertionError, IndexError) as error:
                why = (str(error).splitlines() or [type(error).__name__])[0]
                raise ValueError(
                    f"conv must give layers to call on heads of size {size} and a graph, got "
                    f"{type(layer).__name__}: {why}"
                ) from error

    def check_causal(self) -> None:
        """Refuse what would look ahead: all tokens of a hyperedge, and edges the other way."""
        if self.on_stones:
            raise ValueError("a layer on stones looks ahead in causal order; use graph='pairs'")
        for layer in self.layers:
            if any(getattr(m, "flow", "") == "target_to_source" for m in layer.modules()):
                raise ValueError(
                    f"{type(layer).__name__} must not have flow='target_to_source' in causal order"
                )

    def forward(self, side: int, x: Tensor, graphs: HeadGraphs) -> Tensor:  # [N, D]
        """Return what the layer of queries, of keys or of values makes of them."""
        layer = self.layers[side if len(self.layers) > 1 else 0]
        # Products by a matrix are several times as fast, but not the gradient of its entries.
        if not graphs.edge_weight.requires_grad and _takes_matrix(layer, x, graphs):
            y: Tensor = layer(x, graphs.matrix)
        else:
            call = _calling(type(layer).forward)
            y = call(layer, x, graphs.edge_index, graphs.edge_weight)
        if not isinstance(y, Tensor) or y.shape != x.shape:
            got = list(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(
                f"{type(layer).__name__} must give features {list(x.shape)}, got {got}"
            )
        return y


class LayerPropagator:
    """What layers make of features, along the graphs of some heads."""

    def __init__(self, layers: HeadLayers, operator: Operator, mask: TokenMask) -> None:
        if mask.causal:
            layers.check_causal()
        self.layers = layers
        self.graphs = HeadGraphs.of(operator, mask.valid, layers.on_stones)

    def __call__(self, side: int, x: Tensor) -> Tensor:  # [B, H, L, D]
        """Return features of queries, keys or values after the layer; padding keeps its own."""
        flat, places = x.flatten(0, 2), self.graphs.nodes
        nodes = flat if places is None else flat[places]
        y: Tensor = self.layers(side, nodes, self.graphs).to(x.dtype)
        return (y if places is None else flat.index_copy(0, places, y)).view_as(x)


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
    return (
        adds
        and x.dtype == graphs.edge_weight.dtype
        and not torch.is_autocast_enabled(x.device.type)
    )


Call = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]

# What PyG's layers take in the place of weights: one for each hyperedge, which no link has, the
# sizes of two kinds of nodes, kinds of edges, and edges that are none.
NO_WEIGHTS = (None, "hyperedge_weight", "size", "edge_type", "neg_edge_index")


@cache
def _calling(forward: Callable[..., Any]) -> Call:
    """Return how a layer takes its weights: PyG's layers have three ways."""
    name = _third_argument(forward)
    if name == "edge_attr":  # features of edges, for layers that were made with them
        return _with_edge_features
    if name in NO_WEIGHTS:
        return lambda layer, x, index, _: layer(x, index)
    return lambda layer, x, index, weight: layer(x, index, weight.to(x.dtype))


def _with_edge_features(layer: nn.Module, x: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    if getattr(layer, "edge_dim", None) is None:
        return layer(x, index)  # type: ignore[no-any-return]
    return layer(x, index, weight.to(x.dtype).unsqueeze(-1))  # type: ignore[no-any-return]


def _arguments(forward: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return what a layer takes by position, itself left out."""
    by_position = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    return [entry for entry in parameters if entry.kind in by_position]


def _third_argument(forward: Callable[..., Any]) -> str | None:
    arguments = _arguments(forward)
    if any(entry.kind is entry.VAR_POSITIONAL for entry in arguments):
        return ""
    return arguments[2].name if len(arguments) > 2 else None


def _check_layer(layer: object, graph: str) -> None:
    if not isinstance(layer, nn.Module):
        raise ValueError(f"conv must give modules, got {type(layer).__name__}")
    names = [entry.name for entry in _arguments(type(layer).forward)]
    if "edge_index" in names[2:]:
        raise ValueError(
            f"conv must be called as conv(x, edge_index, edge_weight), but {type(layer).__name__} "
            f"takes {', '.join(names)}; PyG's Sequential can call it"
        )
    on_stones, on_pairs = "hyperedge_index" in names[:2], "edge_index" in names[:2]
    if graph == "stones" and on_pairs:
        raise ValueError(
            f"a layer on stones must take hyperedge_index, as HypergraphConv and StoneConv do; "
            f"{type(layer).__name__} takes edge_index"
        )
    if graph == "pairs" and on_stones:
        raise ValueError(
            f"a layer on pairs must take edge_index, but {type(layer).__name__} takes "
            "hyperedge_index; use graph='stones'"
        )
