"""Heads of pretrained models that are told by clusters where to look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from jat_graph.attention.heads import HeadGroup, split_heads
from jat_graph.config import JatConfig
from jat_graph.graph_config import ClusterGraph, ClusterRule
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.kinds import HeadOutput, HeadParts, LayerHeads, ModuleHeads
from jat_graph.hf.modules import AttentionModule


@dataclass(frozen=True)
class ClusterLayer(LayerHeads):
    """The heads of one attention module that read by clusters."""

    config: JatConfig

    config_class = JatConfig
    graphs = (ClusterGraph,)
    name = "jat_clusters"
    word = "cluster"
    on_features = False

    @property
    def rules(self) -> dict[ClusterRule, tuple[int, ...]]:
        """The settings of the heads, counted from 0, and which of them share them."""
        return self.config.cluster_graph.rules(len(self.heads))

    @classmethod
    def in_modules(cls, modules: list[AttentionModule], config: JatConfig) -> ModuleHeads:
        """Return the heads of each module, which have rows of their own in a table."""
        found = [entry for entry in modules if entry.left_alone is None]
        wanted = len(config.layer_indices(len(found)))
        for name, table in vars(config.cluster_graph).items():
            if isinstance(table, tuple) and len(table) != wanted:
                raise ValueError(
                    f"{name} table must have {wanted} rows, one for each layer, got {len(table)}"
                )
        made = super().in_modules(modules, config)
        if not made:
            kind = type(found[0].module).__name__
            raise ValueError(f"{kind} reads within a window in all layers, which needs no clusters")
        return made

    @classmethod
    def in_module(
        cls, entry: AttentionModule, index: int, row: int, config: Any
    ) -> LayerHeads | None:
        """Return the heads of one module; none if it reads within a window of its own."""
        kind = type(entry.module).__name__
        if entry.is_causal:
            raise ValueError(
                f"{kind} of layer {index} is causal: clusters take in later tokens; "
                "an encoder's layers can be named by layers=(0, 1, ...)"
            )
        if getattr(entry.module, "sliding_window", None) is not None:
            if config.layers is None:
                return None
            raise ValueError(
                f"layers must leave out {index}, whose {kind} reads within a window of its own, "
                f"got {config.layers}"
            )
        heads = config.head_indices(entry.num_heads)
        return cls(index, heads, entry.num_heads, config.for_layer(row, heads))

    def is_identity(self, module: nn.Module) -> bool:
        """Tell whether all heads read densely, whatever the length."""
        return all(rule.dense_below == float("inf") for rule in self.rules)

    def describe(self, module: nn.Module) -> str:
        """Return how many clusters and keys there are, and the rest where it is not the default."""
        graph, default = self.config.cluster_graph, ClusterGraph()
        words = [f"{_spread(graph.clusters, '2√n')} clusters", f"{_spread(graph.keys)} keys"]
        words.append(f"blocks of {_spread(graph.block)}")
        words += [f"refine {graph.refine}"] if graph.refine != default.refine else []
        words += ["nothing elsewhere"] if not graph.propagate else []
        if graph.dense_below is not None:
            words.append(f"dense below {_spread(graph.dense_below, 'a measured length')}")
        return ", ".join(words)

    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return what the heads read; short sequences leave them ordinary ones."""
        # Which few sessions need, and which loads the operators.
        from jat_graph.attention.clustered import read_by_clusters
        from jat_graph.attention.clusters import shortest_length

        inputs.check_whole("cluster heads")
        options: dict[str, Any] = {"dropout_p": inputs.dropout, "scale": inputs.scale}
        parts: list[HeadGroup | HeadOutput] = []
        groups = list(self.rules.values())
        cut = (split_heads(x, groups) for x in (inputs.query, inputs.key, inputs.value))
        for rule, heads, query, key, value in zip(self.rules, groups, *cut, strict=True):
            if query.size(2) < shortest_length(rule):
                parts.append(HeadGroup(heads, query, key, value, jumps=False))
            else:
                options["mask"] = inputs.token_mask()
                output = read_by_clusters(query, key, value, rule, **options)
                parts.append(HeadOutput(heads, output))
        return parts


def _spread(value: Any, unset: str = "") -> str:
    """Return a number, or the least and the largest of a table with one row, and what None is."""
    entries = value[0] if isinstance(value, tuple) else (value,)
    numbers = sorted(entry for entry in entries if entry is not None)
    ends = dict.fromkeys(f"{end:g}" for end in (*numbers[:1], *numbers[-1:]))
    return " or ".join([" to ".join(ends)] * bool(ends) + [unset] * (None in entries))
