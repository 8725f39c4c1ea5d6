"""Jump self-attention on PyTorch Geometric, for any pretrained transformer."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jat_graph import nn, transforms
    from jat_graph.attention import clustered_attention, jump_attention, jump_operator
    from jat_graph.config import JatConfig
    from jat_graph.graph_config import ClusterGraph, PairGraph, StoneGraph
    from jat_graph.graphs import attention_graph, cluster_graph, stone_graph
    from jat_graph.hf import (
        attach,
        detach,
        disabled,
        from_pretrained,
        save_pretrained,
        summary,
        using_graphs,
    )
    from jat_graph.inspection.calibration import calibrate
    from jat_graph.inspection.fidelity import fidelity

__version__ = "0.1.0"

__all__ = [
    "ClusterGraph",
    "JatConfig",
    "PairGraph",
    "StoneGraph",
    "attach",
    "attention_graph",
    "calibrate",
    "cluster_graph",
    "clustered_attention",
    "detach",
    "disabled",
    "fidelity",
    "from_pretrained",
    "jump_attention",
    "jump_operator",
    "nn",
    "save_pretrained",
    "stone_graph",
    "summary",
    "transforms",
    "using_graphs",
]

# Imported at their first use: nobody waits for what is not used.
_MODULE_OF = {
    name: f"jat_graph.{module}"
    for module, names in {
        "attention": "clustered_attention jump_attention jump_operator",
        "config": "JatConfig",
        "graph_config": "ClusterGraph PairGraph StoneGraph",
        "graphs": "attention_graph cluster_graph stone_graph",
        "hf": "attach detach disabled from_pretrained save_pretrained summary using_graphs",
        "inspection.calibration": "calibrate",
        "inspection.fidelity": "fidelity",
    }.items()
    for name in names.split()
}

if not TYPE_CHECKING:  # a type checker would take this for every name there could be

    def __getattr__(name: str) -> object:
        try:
            if name in _MODULE_OF:
                return getattr(import_module(_MODULE_OF[name]), name)
            return import_module(f"jat_graph.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"jat_graph.{name}":
                raise
        raise AttributeError(f"module 'jat_graph' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
