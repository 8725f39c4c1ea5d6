"""What is known of the uses of a word, layer by layer: places, clusters, words that tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.probes.atlas.clusters import Labels, Purity, purities
from jat_graph.probes.atlas.layouts import Floats
from jat_graph.probes.atlas.search import Uses
from jat_graph.viewer.content import AtlasLabel, AtlasLayer, AtlasPoint, AtlasView

if TYPE_CHECKING:
    import pandas as pd

CLUSTER, TAG, SENSE = "cluster", "part of speech", "sense"
ALL = "all"
MOST_GROUPS = 8  # with a shape and a colour of their own
OTHER = "other"
SHOWN_WORDS = 3  # on a map


@dataclass(frozen=True)
class LayerMap:
    """The uses of a word after one layer.

    Args:
        layer: The layer; 0 is the embeddings.
        places: Where each use lies, ``[N, 2]``.
        clusters: The cluster of each, ``[N]``.
        silhouette: Mean silhouette of the clusters, from -1 to 1; NaN where there is one alone.
        words: The words that tell each cluster from the others.
    """

    layer: int
    places: Floats
    clusters: Labels
    silhouette: float
    words: Mapping[int, Sequence[str]]

    @property
    def name(self) -> str:
        """What the layer is called."""
        return f"layer {self.layer}" if self.layer else "embeddings"

    @property
    def labels(self) -> list[AtlasLabel]:
        """The words that tell clusters apart, each in the middle of its cluster."""
        found = []
        for cluster, words in self.words.items():
            x, y = self.middle(cluster)
            found.append(AtlasLabel(x, y, cluster_name(cluster, words)))
        return found

    def middle(self, cluster: int) -> tuple[float, float]:
        """The place of the use that is nearest to the middle of its cluster."""
        inside = self.places[self.clusters == cluster]
        away = np.linalg.norm(inside - np.median(inside, axis=0), axis=1)
        x, y = inside[away.argmin()]
        return float(x), float(y)


def cluster_name(cluster: int, words: Sequence[str]) -> str:
    """The number of a cluster, from 1, and its words."""
    shown = ", ".join(words[:SHOWN_WORDS])
    return f"{cluster + 1}: {shown}" if shown else str(cluster + 1)


@dataclass(frozen=True)
class AtlasMaps:
    """The uses of a word after each layer.

    Args:
        uses: The sentences.
        layers: What they are after each layer.
        definitions: What senses are, by their keys. (default: nobody knows)
    """

    uses: Uses
    layers: tuple[LayerMap, ...]
    definitions: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def kinds(self) -> dict[str, list[str | None]]:
        """The part of speech and the sense of each use, where any is known."""
        contexts, places = self.uses.contexts, self.uses.places
        columns = {TAG: [own.tags for own in contexts], SENSE: [own.senses for own in contexts]}
        found = {
            name: [None if own is None else own[at] for own, at in zip(column, places, strict=True)]
            for name, column in columns.items()
        }
        found[SENSE] = [
            own and f"{own} {self.definitions.get(own, '')}".strip() for own in found[SENSE]
        ]
        return {name: kinds for name, kinds in found.items() if any(kinds)}

    def groups(self, kind: str, layer: LayerMap) -> list[str]:
        """What colours each use: its cluster or its kind, rare ones together, "" if not known."""
        if kind == CLUSTER:
            return [str(own + 1) for own in layer.clusters]
        common = Counter(own for own in self.kinds[kind] if own).most_common()
        most = MOST_GROUPS if len(common) <= MOST_GROUPS else MOST_GROUPS - 1
        shown = {own for own, _ in common[:most]}
        return [(own if own in shown else OTHER) if own else "" for own in self.kinds[kind]]

    def table(self) -> pd.DataFrame:
        """A row for each cluster of each layer, and one for all of the layer's."""
        import pandas as pd

        return pd.DataFrame([row for layer in self.layers for row in self._rows(layer)])

    def _rows(self, layer: LayerMap) -> list[dict[str, Any]]:
        rows: dict[int | None, dict[str, Any]] = {
            cluster: {
                "layer": layer.layer,
                "cluster": str(cluster + 1),
                "sentences": int((layer.clusters == cluster).sum()),
                "silhouette": None,
                "telling words": ", ".join(words),
            }
            for cluster, words in layer.words.items()
        }
        rows[None] = {
            "layer": layer.layer,
            "cluster": ALL,
            "sentences": len(layer.clusters),
            "silhouette": None if np.isnan(layer.silhouette) else layer.silhouette,
            "telling words": "",
        }
        for name, kinds in self.kinds.items():
            for cluster, purity in purities(layer.clusters, kinds).items():
                rows[cluster] |= _columns(name, purity)
        return list(rows.values())

    def views(self) -> list[AtlasView]:
        """A map for the viewer, by cluster and by each kind that is known."""
        points = [_point(own.words, at) for own, at in self._uses()]
        return [
            AtlasView(
                title=f"{self.uses.word} by {kind}",
                points=points,
                layers=[
                    AtlasLayer(
                        own.name,
                        [(float(x), float(y)) for x, y in own.places],
                        self.groups(kind, own),
                        own.labels,
                        _layer_caption(own),
                    )
                    for own in self.layers
                ],
            )
            for kind in (CLUSTER, *self.kinds)
        ]

    def _uses(self) -> zip[tuple[Any, int]]:
        return zip(self.uses.contexts, self.uses.places, strict=True)


def _columns(name: str, purity: Purity | None) -> dict[str, Any]:
    if purity is None:
        return {name: None, f"{name} known": 0}
    return {
        name: purity.kind,
        f"{name} known": purity.known,
        f"{name} share": purity.share,
        f"{name} low": purity.low,
        f"{name} high": purity.high,
    }


def _point(words: Sequence[str], place: int) -> AtlasPoint:
    """A sentence with a space between any two words, and where the word is in it."""
    start = sum(len(word) + 1 for word in words[:place])
    span = start, start + len(words[place])
    return AtlasPoint(words[place], " ".join(words), span)


def _layer_caption(layer: LayerMap) -> str:
    if np.isnan(layer.silhouette):
        return "No parts can be told apart."
    return f"{len(layer.words)} clusters, silhouette {layer.silhouette:.2f}."
