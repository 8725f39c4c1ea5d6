"""Transforms of PyTorch Geometric: from attention to graphs."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from jat_graph.core.numbers import check_integer
from jat_graph.graphs.pairs import attention_graph
from jat_graph.jumps.config import JatConfig, check_config

__all__ = ["AttentionToGraph"]

SOURCES = ("query", "key", "scores", "probabilities")


class AttentionToGraph(BaseTransform):  # type: ignore[misc]  # PyG is not typed
    r"""Turn one head's attention over a graph's nodes into the graph's edges.

    The data holds either ``query`` and ``key``, node features ``[N, H, D]``; or a ready-made map,
    query by key: ``scores``, scaled, or ``probabilities`` as in a model's ``outputs.attentions``,
    ``[H, N, N]``. Every token is a node: leave padding out.

    The result has ``edge_index`` with rows (source k, target i), ``edge_weight`` with the weights
    A_ik, ``num_nodes``, and what pruning dropped: ``dropped_edges`` and ``dropped_weight``. They
    replace the edges that were there, with all that belongs to them (``adj_t`` and every
    ``edge_…``). What the graph was made from is taken out, as ``FaceToEdge`` does with faces: maps
    of different sizes do not collate. All else stays, ``x`` and ``y`` for example. For the graphs
    of all heads, see :func:`jat_graph.attention_graph`.

    Args:
        config: The settings; a table of thresholds has one row with an entry for each head.
            Probabilities take ρ in [0, 1) or ``vote_rate``.
        head: The head, from 0. (default: 0)
        is_causal, scale, max_neighbors: As for :func:`jat_graph.attention_graph`.

    Raises:
        ValueError: If the config or the head does not fit.

    Reference:
        Eq. 2 and 3 of the JAT paper.
    """

    def __init__(
        self,
        config: JatConfig,
        *,
        head: int = 0,
        is_causal: bool = False,
        scale: float | None = None,
        max_neighbors: int | None = None,
    ) -> None:
        check_config(config)
        self.config = config
        self.head = check_integer("head", head, least=0)
        self.options: dict[str, Any] = {"is_causal": is_causal, "scale": scale}
        self.options["max_neighbors"] = max_neighbors

    def forward(self, data: Data) -> Data:
        """Return the data with the head's attention as its edges.

        Args:
            data: One graph. Called through the transform itself, it changes a shallow copy.

        Returns:
            The same object.

        Raises:
            ValueError: If it is not one graph, holds no attention or too much, or does not fit.
        """
        if not isinstance(data, Data) or isinstance(data, Batch):
            raise ValueError(f"data must be the Data of one graph, got {type(data).__name__}")
        heads, source = self._read_source(data)
        threshold = self.config.jump_graph.thresholds(heads)[self.head]
        config = self.config.replace(threshold=threshold)
        batch = attention_graph(**source, config=config, **self.options)
        known = data.x.size(0) if isinstance(data.x, Tensor) else data.get("num_nodes")
        if known is not None and known != batch.num_nodes:
            wanted = f"{batch.num_nodes} nodes like its attention"
            raise ValueError(f"data must have {wanted}, got {known}")
        for name in list(data.keys()):
            if name in (*SOURCES, "adj_t") or name.startswith("edge_"):
                del data[name]
        data.edge_index, data.edge_weight = batch.edge_index, batch.edge_weight
        data.num_nodes = batch.num_nodes
        data.dropped_edges = int(batch.dropped_edges)
        data.dropped_weight = float(batch.dropped_weight)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(head={self.head})"

    def _read_source(self, data: Data) -> tuple[int, dict[str, Any]]:
        """Return the number of heads, and the head's attention for :func:`attention_graph`."""
        found = [name for name in SOURCES if data.get(name) is not None]
        if found not in (["query", "key"], ["scores"], ["probabilities"]):
            wanted = "query and key, or scores, or probabilities"
            got = " and ".join(found) or "none of them"
            raise ValueError(f"data must hold {wanted}, got {got}")
        first = found[0]
        shape = data[first].shape
        axis, wanted = (1, "[N, H, D]") if first == "query" else (0, "[H, N, N]")
        if len(shape) != 3:
            raise ValueError(f"{first} must be {wanted}, got {list(shape)}")
        if first == "query" and data.key.shape != shape:
            raise ValueError(f"key must be {list(shape)} like query, got {list(data.key.shape)}")
        heads = shape[axis]
        if self.head >= heads:
            raise ValueError(f"head must be below the {heads} heads of {first}, got {self.head}")
        own = [data[name].select(axis, self.head)[None, None] for name in found]  # [1, 1, N, ·]
        if first == "query":
            return heads, {"query": own[0], "key": own[1]}
        return heads, {"scores": own[0], "kind": first}
