"""The atlas of a word: what a model makes of it in many sentences, as points in the plane."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.checks.numbers import check_integer
from jat_graph.directions import isolated
from jat_graph.probes.clusters import directions, find_clusters, lay_out, renamed, telling_words
from jat_graph.probes.contexts import Context, Uses, find_uses
from jat_graph.probes.corpora import WordNet
from jat_graph.probes.findings import CONFIDENCE, Findings, Floats, Integers
from jat_graph.probes.pictures import COLOURS, MARKERS
from jat_graph.probes.words import WordReader, check_layers
from jat_graph.progress import track_progress
from jat_graph.viewer import AtlasView, Page
from jat_graph.viewer.content import AtlasLabel, AtlasLayer, AtlasPoint
from jat_graph.viz.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LEAST = 5  # sentences: fewer make no map
CLUSTER, TAG, SENSE = "cluster", "part of speech", "sense"
ALL, OTHER, UNKNOWN = "all", "other", ""
MOST_GROUPS = len(COLOURS)
ACROSS, SIDE, LINE, LETTERS = 4, 2.9, 0.16, 46  # panels in a row; inches; letters of a name

CAPTION = (
    "Uses of a word in sentences; each is a point, the word's state there, in a layout of which "
    "only who is near whom means something. Clusters are of the states, not of the layout, and "
    "are few where the silhouette, from -1 to 1, is best; near 0 there are no parts to speak of. "
    "Telling words stand in surely more sentences of a cluster than of the others. A share of a "
    "part of speech or sense says something where its interval is above the share that the most "
    "common one has of all uses (settings)."
)


@dataclass(frozen=True)
class Atlas(Findings):
    """What :func:`context_atlas` found: a table, pictures, and maps for the viewer.

    Args:
        views: The maps, by cluster and by each kind that is known. (default: none)
    """

    views: tuple[AtlasView, ...] = ()

    @property
    def page(self) -> Page:
        """The maps as a page, which a notebook shows and ``save`` writes."""
        return Page(f"Uses of {self.settings['word']}", atlases=self.views)

    def save(self, folder: str | Path) -> list[Path]:
        """Write the table, the pictures, and the page as ``atlas.html``."""
        files = super().save(folder)
        path = Path(folder) / f"{self.name}.html"
        self.page.save(path)
        return [*files, path]


def context_atlas(
    word: str,
    contexts: Iterable[Context],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    most: int = 1000,
    layers: Sequence[int] | None = None,
    wordnet: WordNet | None = None,
    seed: int = 0,
) -> Atlas:
    """Lay out the uses of a word in the plane, layer by layer: one point a sentence.

    A point is the word's state where it first stands in the sentence. States of a layer are seen
    from their mean and brought to one length. UMAP lays them out, or PCA where umap-learn is
    missing; each layer begins where the one below ended. Clusters are those of k-means, of as many
    as give the best silhouette, from 2 to 8; a cluster keeps its number in the next layer where it
    keeps its points. Its words are those of whose sentences it has surely more than others have.
    Distances between far groups of a map by UMAP mean nothing, nor do clusters with a low
    silhouette.

    Args:
        word: The word, in any case. Other forms of it are other words.
        contexts: Sentences, from :func:`read_contexts`; of two with the same letters the first
            counts.
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        folder: Where states are kept.
        most: Most sentences, 5 or more; of more an even sample is drawn. (default: 1000)
        layers: Layers to show; 0 is the embeddings. (default: None, all)
        wordnet: From :func:`open_wordnet`, to say what senses are. (default: None, keys alone)
        seed: Seed of the sample, the layout and the clusters. (default: 0)

    Returns:
        A row for each cluster: its sentences, the words that tell, and the share of the most
        common part of speech and sense in it, with Wilson's 95 % interval; the row "all" of a layer
        has the share of all uses whose cluster is mostly of their kind. A picture for each kind.

    Raises:
        ValueError: If no sentence has the word, or fewer than 5 that fit the model, or an option
            is not in its range.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 4.1; McInnes
        et al., *UMAP*, 2018.
    """
    import pandas as pd

    check_integer("most", most, least=LEAST)
    check_integer("seed", seed, least=0, below=2**32)
    chosen = check_layers(model, layers)
    uses = find_uses(word, contexts, most, seed)
    reader = WordReader(model, tokenizer, folder)
    found = reader.read_states([own.words for own in uses.contexts], [[at] for at in uses.indices])
    kept = [row for row in range(len(uses.indices)) if row not in found.left_out]
    if len(kept) < LEAST:
        wanted = f"word must stand in {LEAST} sentences that fit the model"
        raise ValueError(f"{wanted}, got {word!r} in {len(kept)}")
    own = [uses.contexts[row] for row in kept]
    uses = replace(uses, contexts=own, indices=[uses.indices[row] for row in kept])
    points = [directions(found.values[layer, kept].astype(np.float64)) for layer in chosen]
    placed, method = lay_out(points, seed)
    maps: list[LayerMap] = []
    for index, layer in enumerate(track_progress(chosen, "Clustering layers", len(chosen))):
        clusters, silhouette = find_clusters(points[index], seed)
        if maps:
            clusters = renamed(clusters, maps[-1].clusters)
        words = telling_words(uses, clusters)
        maps.append(LayerMap(layer, placed[index], clusters, silhouette, words))
    kinds = _kinds(uses, wordnet)
    names = {kind: f"atlas-{kind.replace(' ', '-')}" for kind in (CLUSTER, *kinds)}
    return Atlas(
        name="atlas",
        caption=CAPTION,
        table=pd.DataFrame([row for one in maps for row in one.rows(kinds)]),
        settings={
            "word": uses.word,
            "sentences_read": uses.read,
            "sentences_found": uses.found,
            "sentences_shown": len(kept),
            "layers": list(chosen),
            "layout": method,
            "seed": seed,
            "common": {kind: _most_common(own) for kind, own in kinds.items()},
        },
        figures={name: _draw(uses, maps, kind, kinds, method) for kind, name in names.items()},
        views=tuple(_view(uses, maps, kind, kinds) for kind in (CLUSTER, *kinds)),
    )


@dataclass(frozen=True)
class LayerMap:
    """The uses of a word after one layer."""

    layer: int
    points: Floats  # [N, 2], where each use lies
    clusters: Integers  # [N]
    silhouette: float  # the mean, from -1 to 1; NaN where there is one cluster alone
    words: Mapping[int, Sequence[str]]  # that tell each cluster from the others

    @property
    def name(self) -> str:
        """What the layer is called."""
        return f"layer {self.layer}" if self.layer else "embeddings"

    def middle(self, cluster: int) -> tuple[float, float]:
        """The point of the use that is nearest to the middle of its cluster."""
        inside = self.points[self.clusters == cluster]
        away = np.linalg.norm(inside - np.median(inside, axis=0), axis=1)
        x, y = inside[away.argmin()]
        return float(x), float(y)

    def groups(self, kind: str, kinds: Mapping[str, Sequence[str | None]]) -> list[str]:
        """What colours each use: its cluster or its kind, rare ones together."""
        if kind == CLUSTER:
            return [str(own + 1) for own in self.clusters]
        common = [own for own, _ in Counter(own for own in kinds[kind] if own).most_common()]
        shown = common[: MOST_GROUPS if len(common) <= MOST_GROUPS else MOST_GROUPS - 1]
        return [(own if own in shown else OTHER) if own else UNKNOWN for own in kinds[kind]]

    def rows(self, kinds: Mapping[str, Sequence[str | None]]) -> list[dict[str, Any]]:
        """A row for each cluster, and one for all."""
        rows: list[dict[str, Any]] = []
        for cluster in (*self.words, None):  # the last row is of all
            own = np.ones(len(self.clusters), bool) if cluster is None else self.clusters == cluster
            known = cluster is None and not np.isnan(self.silhouette)
            row: dict[str, Any] = {
                "layer": self.layer,
                "cluster": ALL if cluster is None else str(cluster + 1),
                "sentences": int(own.sum()),
                "silhouette": self.silhouette if known else None,
                "telling words": "" if cluster is None else ", ".join(self.words[cluster]),
            }
            for name, values in kinds.items():
                row |= _purity(name, self.clusters[own], np.array(values, object)[own])
            rows.append(row)
        return rows


def _purity(name: str, clusters: Integers, kinds: Any) -> dict[str, Any]:
    """Say how many uses are of the kind that their cluster is most of, of those that are known."""
    from scipy.stats import binomtest

    counts = [
        Counter(kind for kind in kinds[clusters == one] if kind) for one in np.unique(clusters)
    ]
    known = sum(own.total() for own in counts)
    if not known:
        return {name: None, f"{name} known": 0}
    most = sum(max(own.values(), default=0) for own in counts)
    interval = binomtest(most, known).proportion_ci(CONFIDENCE, method="wilson")
    return {
        name: counts[0].most_common(1)[0][0] if len(counts) == 1 else "",
        f"{name} known": known,
        f"{name} share": most / known,
        f"{name} low": float(interval.low),
        f"{name} high": float(interval.high),
    }


def _kinds(uses: Uses, wordnet: WordNet | None) -> dict[str, list[str | None]]:
    """The part of speech and the sense of each use, where any is known."""
    pairs = list(zip(uses.contexts, uses.indices, strict=True))
    tags = [own.tags[at] if own.tags else None for own, at in pairs]
    senses = [own.senses[at] if own.senses else None for own, at in pairs]
    if wordnet is not None:
        senses = [own and f"{own} {wordnet.definition(own)}" for own in senses]
    return {name: own for name, own in ((TAG, tags), (SENSE, senses)) if any(own)}


def _most_common(kinds: Sequence[str | None]) -> tuple[str, float]:
    """The most common kind, and its share of the uses whose kind is known."""
    known = Counter(kind for kind in kinds if kind)
    kind, number = known.most_common(1)[0]
    return kind, number / known.total()


def _view(
    uses: Uses, maps: Sequence[LayerMap], kind: str, kinds: Mapping[str, Sequence[str | None]]
) -> AtlasView:
    """A map for the viewer: sentences with a space between any two words, where the word is."""
    points = []
    for context, index in zip(uses.contexts, uses.indices, strict=True):
        start = sum(len(word) + 1 for word in context.words[:index])
        word = context.words[index]
        points.append(AtlasPoint(word, " ".join(context.words), (start, start + len(word))))
    layers = []
    for own in maps:
        caption = f"{len(own.words)} clusters, silhouette {own.silhouette:.2f}."
        labels = [
            AtlasLabel(*own.middle(one), f"{one + 1}: {', '.join(words[:3])}".removesuffix(": "))
            for one, words in own.words.items()
        ]
        placed = [(float(x), float(y)) for x, y in own.points]
        caption = "No parts can be told apart." if np.isnan(own.silhouette) else caption
        layers.append(AtlasLayer(own.name, placed, own.groups(kind, kinds), labels, caption))
    return AtlasView(title=f"{uses.word} by {kind}", points=points, layers=layers)


def _draw(
    uses: Uses,
    maps: Sequence[LayerMap],
    kind: str,
    kinds: Mapping[str, Sequence[str | None]],
    method: str,
) -> Figure:
    """Draw the uses of a word after each layer, by cluster or by what is known of them."""
    counts = Counter(group for own in maps for group in own.groups(kind, kinds))
    known = sorted(set(counts) - {UNKNOWN, OTHER}, key=lambda own: (-counts[own], own))
    if kind == CLUSTER:
        known.sort(key=int)
    styles = [(colour, marker) for colour, marker in zip(COLOURS, MARKERS, strict=True)]
    looks = {own: styles[index % len(styles)] for index, own in enumerate(known)}
    looks |= {OTHER: ("#777777", "+")} if OTHER in counts else {}
    looks |= {UNKNOWN: ("#BBBBBB", ".")} if UNKNOWN in counts else {}
    across = min(ACROSS, len(maps))
    down = -(-len(maps) // across)
    lines = max(len(own.words) for own in maps) if kind == CLUSTER else 0
    notes = 0.0 if kind == CLUSTER else LINE * 1.25 * (-(-len(looks) // across) + 1)
    height = down * (SIDE + 0.2 + LINE * lines) + notes
    heading = f"{len(uses.indices)} uses of “{_safe(uses.word)}” by {kind}, laid out by {method}"
    figure = new_figure(across * SIDE, height, heading=heading, size=12, notes=notes)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes[len(maps) :]:
        axis.set_axis_off()
    for axis, own in zip(axes, maps, strict=False):
        groups = np.array(own.groups(kind, kinds))
        for name, (colour, marker) in reversed(looks.items()):  # the unknown below all others
            x, y = own.points[groups == name].T
            axis.scatter(x, y, s=9, c=colour, marker=marker, lw=0.5, alpha=0.8)
        axis.set(xticks=[], yticks=[])
        axis.set_aspect("equal", adjustable="datalim")
        axis.set_title(own.name, fontsize=9)
        for cluster in own.words if kind == CLUSTER else ():
            box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "black", "lw": 0.5}
            look: Any = {"fontsize": 7, "ha": "center", "va": "center", "bbox": box}
            axis.annotate(str(cluster + 1), own.middle(cluster), **look)
        if kind == CLUSTER:
            named = (f"{one + 1}: {', '.join(words)}" for one, words in sorted(own.words.items()))
            short = [textwrap.shorten(name, LETTERS, placeholder=" …") for name in named]
            axis.set_xlabel(_safe("\n".join(short)), fontsize=7, loc="left")
    if kind != CLUSTER:
        handles = [_handle(look, name) for name, look in looks.items()]
        figure.legend(handles=handles, loc="lower center", ncols=across, fontsize=8, frameon=False)
    return figure


def _handle(look: tuple[str, str], name: str) -> Any:
    from matplotlib.lines import Line2D

    label = textwrap.shorten(name or "not known", LETTERS, placeholder=" …")
    return Line2D([], [], color=look[0], marker=look[1], ls="", ms=4, label=_safe(label))


def _safe(text: str) -> str:
    """A text that matplotlib reads as no mathematics."""
    return isolated(text.replace("$", r"\$"))
