"""STUB until the other branch is merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jat_graph.attention.clustered import read_by_clusters
from jat_graph.config import JatConfig
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.kinds import HeadOutput, HeadParts, LayerHeads
from jat_graph.hf.modules import AttentionModule


@dataclass(frozen=True)
class ClusterLayer(LayerHeads):
    config: JatConfig
    config_class = JatConfig
    name = "jat"
    word = "cluster"
    on_features = False

    @classmethod
    def in_module(cls, entry: AttentionModule, index: int, row: int, config: Any) -> LayerHeads:
        heads = config.head_indices(entry.num_heads)
        return cls(index, heads, entry.num_heads, config.for_layer(row, heads))

    def describe(self, module):
        return "clusters"

    def run(self, inputs: AttentionInputs) -> HeadParts:
        found = []
        for rule, heads in self.config.graph.rules(len(self.heads)).items():
            h = list(heads)
            found.append(HeadOutput(heads, read_by_clusters(
                inputs.query[:, h], inputs.key[:, h], inputs.value[:, h], rule,
                mask=inputs.token_mask(), dropout_p=inputs.dropout, scale=inputs.scale)))
        return found
