"""Heads that read by clusters, put on a model for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel

from jat_graph.config import ClusterGraph, JatConfig, check_clusters
from jat_graph.hf import attach, attached_config, detach
from jat_graph.hf.clustered import graph_by_name
from jat_graph.hf.modules import attention_modules, transformer_of


def cluster_config(model: PreTrainedModel, config: JatConfig | None = None) -> JatConfig:
    """Return settings of clusters, by default those that the model reads with, or else ours.

    Without layers, they are for those that clusters can serve.
    """
    if config is None:
        graph = graph_by_name(transformer_of(model).config)
        named = JatConfig.clustered() if graph is None else JatConfig.clustered(graph=graph)
        config = attached_config(model, ClusterGraph) or named
    check_clusters(config)
    return config if config.layers else config.replace(layers=_served_layers(model))


def _served_layers(model: PreTrainedModel) -> tuple[int, ...] | None:
    """Return the layers that see all tokens; None if all do, or none does, which attach refuses."""
    found = [e for e in attention_modules(transformer_of(model)) if e.left_alone is None]
    served = tuple(
        index
        for index, entry in enumerate(found)
        if not entry.is_causal and getattr(entry.module, "sliding_window", None) is None
    )
    return served if 0 < len(served) < len(found) else None


@contextmanager
def keeping_clusters(model: PreTrainedModel) -> Iterator[None]:
    """Give a model after the ``with`` the heads on clusters back that it had, or none."""
    before = attached_config(model, ClusterGraph)
    try:
        yield
    finally:
        change_clusters(model, before)


def change_clusters(model: PreTrainedModel, config: JatConfig | None) -> None:
    """Give a model heads that read by clusters with other settings, or none."""
    before = attached_config(model, ClusterGraph)
    if before == config:
        return
    if before is not None:
        detach(model, ClusterGraph)
    if config is not None:
        attach(model, config)
