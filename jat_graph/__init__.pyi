from . import nn, transforms
from .clusters.api import clustered_attention
from .clusters.settings import ClusterGraph
from .graphs import attention_graph, stone_graph, tree_graph
from .hf import (
    attach,
    detach,
    disabled,
    from_pretrained,
    save_pretrained,
    summary,
    supports,
    using_global_tokens,
    using_graphs,
)
from .jumps.api import jump_attention, jump_operator
from .jumps.config import JatConfig
from .jumps.graph_config import PairGraph, StoneGraph
from .looking.inspection.calibration import calibrate
from .looking.inspection.fidelity import fidelity

__version__: str

__all__ = [
    "ClusterGraph",
    "JatConfig",
    "PairGraph",
    "StoneGraph",
    "attach",
    "attention_graph",
    "calibrate",
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
    "supports",
    "transforms",
    "tree_graph",
    "using_global_tokens",
    "using_graphs",
]
