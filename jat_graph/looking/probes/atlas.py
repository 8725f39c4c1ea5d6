"""The atlas of a word: what a model makes of it in many sentences, as points in the plane."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from jat_graph.core.extras import import_extra
from jat_graph.core.numbers import check_integer
from jat_graph.core.progress import track_progress
from jat_graph.looking.directions import isolated
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.contexts import (
    Context,
    directions,
    find_clusters,
    find_uses,
    lay_out,
    renamed,
    telling_words,
)
from jat_graph.looking.probes.corpora import WordNet
from jat_graph.looking.probes.drawing import COLOURS, MARKERS, Figure
from jat_graph.looking.probes.findings import CONFIDENCE, Findings, Floats, Integers, with_ends
from jat_graph.looking.probes.words import WordReader, check_layers, read_states
from jat_graph.looking.viewer import AtlasView, Page
from jat_graph.looking.viewer.content import AtlasLabel, AtlasLayer, AtlasPoint
from jat_graph.looking.viz.figures import new_figure

LEAST = 5  # sentences: fewer make no map
CLUSTER, TAG, SENSE = "cluster", "part of speech", "sense"
ALL, OTHER, UNKNOWN = "all", "other", ""
MOST_GROUPS = len(COLOURS)
ACROSS, SIDE, LINE, LETTERS = 3, 2.26, 0.16, 38  # panels in a row; inches; letters below one

CAPTION = (
    "Uses of a word in sentences. Each point is the state of the word there, in a layout of which "
    "only neighbourhoods mean something. Clusters are formed of the states, not of the layout, in "
    "the number with the best silhouette, from -1 to 1; near 0 there are no separate groups. "
    "Telling words occur in significantly more sentences of a cluster than of the others. The "
    "share of a part of speech or sense means something if its interval lies above the share of "
    "the most common one among all uses (settings)."
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
        files, path = super().save(folder), Path(folder) / f"{self.name}.html"
        self.page.save(path)
        return [*files, path]


def context_atlas(
    reader: WordReader,
    word: str,
    contexts: Iterable[Context],
    *,
    most: int = 1000,
    layers: Sequence[int] | None = None,
    wordnet: WordNet | None = None,
    seed: int = 0,
) -> Atlas:
    """Lay out the uses of a word in the plane, layer by layer: one point a sentence.

    A point is the word's state where it first stands in the sentence, seen from the mean of a
    layer's states and brought to one length. UMAP lays them out, or PCA where umap-learn is
    missing; each layer begins where the one below ended. Clusters are those of k-means, from 2 to 8
    by the best silhouette; one keeps its number in the next layer where it keeps its points.
    Distances between far groups of UMAP mean nothing, nor do clusters with a low silhouette.

    Args:
        reader: A model, and where its states are kept.
        word: The word, in any case. Other forms of it are other words.
        contexts: Sentences, from :func:`read_contexts`; those with the same letters count once.
        most: Most sentences, 5 or more; of more an even sample is drawn. (default: 1000)
        layers: Layers to show; 0 is the embeddings. (default: None, all)
        wordnet: From :func:`open_wordnet`, to say what senses are. (default: None, keys alone)
        seed: Seed of the sample, the layout and the clusters. (default: 0)

    Returns:
        A row for each cluster: its sentences, telling words, and the share of its most common part
        of speech and sense, with Wilson's 95 % interval; the row "all" of a layer has the share of
        all uses whose cluster is mostly of their kind. A picture for each kind.

    Raises:
        ValueError: If no sentence has the word, or fewer than 5 that fit the model, or an option
            is not in its range.

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, section 4.1; McInnes
        et al., *UMAP*, 2018.
    """
    check_integer("most", most, least=LEAST)
    check_integer("seed", seed, least=0, below=2**32)
    chosen = check_layers(reader, layers)
    uses, different, read = find_uses(word, contexts, most, seed)
    found = read_states(reader, [own.words for own, _ in uses], [[[at]] for _, at in uses])
    kept = [row for row in range(len(uses)) if row not in found.left_out]
    uses = [uses[row] for row in kept]
    if len(uses) < LEAST:
        wanted = f"word must stand in {LEAST} sentences that fit the model"
        raise ValueError(f"{wanted}, got {word!r} in {len(uses)}")
    states = [directions(found.values[layer, kept].astype(np.float64)) for layer in chosen]
    placed, method = lay_out(states, seed)
    maps: list[LayerMap] = []
    for index, layer in enumerate(track_progress(chosen, "Clustering layers", len(chosen))):
        clusters, silhouette = find_clusters(states[index], seed)
        if maps:
            clusters = renamed(clusters, maps[-1].clusters)
        words = telling_words(word, [own.words for own, _ in uses], clusters)
        maps.append(LayerMap(layer, placed[index], clusters, silhouette, words))
    tags = [own.tags[at] if own.tags else None for own, at in uses]
    senses = [own.senses[at] if own.senses else None for own, at in uses]
    if wordnet is not None:
        senses = [own and f"{own} {wordnet.definition(own)}" for own in senses]
    kinds = pd.DataFrame({TAG: tags, SENSE: senses}, dtype=object).fillna(UNKNOWN)
    kinds = kinds.loc[:, (kinds != UNKNOWN).any()]
    shares = {kind: own[own != UNKNOWN].value_counts(normalize=True) for kind, own in kinds.items()}
    settings = {
        "word": word,
        "sentences_read": read,
        "sentences_found": different,
        "sentences_shown": len(kept),
        "layers": list(chosen),
        "layout": method,
        "seed": seed,
        "common": {kind: (own.idxmax(), float(own.max())) for kind, own in shares.items()},
    }
    table = pd.DataFrame([row for one in maps for row in one.rows(kinds)])
    points = []
    for own, at in uses:  # sentences with a space between any two words, and where the word is
        start, label = sum(len(before) + 1 for before in own.words[:at]), own.words[at]
        points.append(AtlasPoint(label, " ".join(own.words), (start, start + len(label))))
    figures, views = {}, []
    for kind in (CLUSTER, *kinds):
        drawn = [own.view(None if kind == CLUSTER else kinds[kind]) for own in maps]
        view = AtlasView(f"{word} by {kind}", points, drawn, opens=_clearest(table, kind))
        heading = f"{len(uses)} uses of “{_safe(word)}” by {kind}, laid out by {method}"
        figures[f"atlas-{kind.replace(' ', '-')}"] = _draw(heading, drawn, kind == CLUSTER)
        views.append(view)
    return Atlas("atlas", CAPTION, table, settings, figures, views=tuple(views))


def _clearest(table: pd.DataFrame, kind: str) -> int:
    """Return the place of the layer that parts clusters or a kind best, or of the last one."""
    rows = table[table["cluster"] == ALL].reset_index()
    # Embeddings of one word part by its place in the sentence.
    found = rows["silhouette" if kind == CLUSTER else f"{kind} share"].where(rows["layer"] > 0)
    return int(found.astype(float).idxmax()) if found.notna().any() else len(rows) - 1


@dataclass(frozen=True)
class LayerMap:
    """The uses of a word after one layer."""

    layer: int
    points: Floats  # [N, 2], where each use lies
    clusters: Integers  # [N]
    silhouette: float  # the mean, from -1 to 1; NaN where there is one cluster alone
    words: Mapping[int, Sequence[str]]  # that tell each cluster from the others

    def view(self, kinds: pd.Series[str] | None) -> AtlasLayer:
        """The layer for the viewer, each use coloured by its cluster or by its kind."""
        if kinds is None:
            groups = [str(own + 1) for own in self.clusters]
        else:
            common = kinds[kinds != UNKNOWN].value_counts().index  # rare ones stand together
            shown = common[: MOST_GROUPS if len(common) <= MOST_GROUPS else MOST_GROUPS - 1]
            groups = kinds.where(kinds.isin([*shown, UNKNOWN]), OTHER).tolist()
        labels = []
        for one, words in self.words.items():  # at the use that is nearest to the middle
            inside = self.points[self.clusters == one]
            away = np.linalg.norm(inside - np.median(inside, axis=0), axis=1)
            text = f"{one + 1}: {', '.join(words[:3])}".removesuffix(": ")
            x, y = inside[away.argmin()].tolist()
            labels.append(AtlasLabel(x, y, text))
        caption = f"{len(self.words)} clusters, silhouette {self.silhouette:.2f}."
        caption = "No parts can be told apart." if np.isnan(self.silhouette) else caption
        name = f"layer {self.layer}" if self.layer else "embeddings"
        return AtlasLayer(name, list(map(tuple, self.points.tolist())), groups, labels, caption)

    def rows(self, kinds: pd.DataFrame) -> list[dict[str, Any]]:
        """A row for each cluster, and one for all: who is of the kind its cluster is most of."""
        binomtest = import_extra("scipy.stats").binomtest
        uses, rows = kinds.assign(cluster=self.clusters), []
        for one in (*self.words, None):
            own = uses if one is None else uses[uses["cluster"] == one]
            row = {
                "layer": self.layer,
                "cluster": ALL if one is None else str(one + 1),
                "sentences": len(own),
                "silhouette": self.silhouette if one is None else np.nan,
                "telling words": "" if one is None else ", ".join(self.words[one]),
            }
            for kind in kinds:
                counts = own[own[kind] != UNKNOWN].groupby("cluster")[kind].value_counts()
                known = int(counts.sum())
                row |= {kind: None, f"{kind} known": known}
                if known:
                    row[kind] = counts.idxmax()[1] if own["cluster"].nunique() == 1 else ""
                    most = int(counts.groupby("cluster").max().sum())
                    ends = binomtest(most, known).proportion_ci(CONFIDENCE, method="wilson")
                    row |= with_ends(f"{kind} share", (most / known, *ends), f"{kind} ")
            rows.append(row)
        return rows


def _draw(heading: str, layers: Sequence[AtlasLayer], by_cluster: bool) -> Figure:
    """Draw the uses of a word after each layer, by cluster or by what is known of them."""
    counts = Counter(group for own in layers for group in own.groups)
    known = sorted(set(counts) - {UNKNOWN, OTHER}, key=lambda own: (-counts[own], own))
    if by_cluster:
        known.sort(key=int)
    looks = dict(zip(known, cycle(zip(COLOURS, MARKERS, strict=True)), strict=False))
    looks |= {OTHER: ("#777777", "+")} if OTHER in counts else {}
    looks |= {UNKNOWN: ("#BBBBBB", ".")} if UNKNOWN in counts else {}
    across = min(ACROSS, len(layers))
    down = -(-len(layers) // across)
    lines = max(len(own.labels) for own in layers) if by_cluster else 0
    notes = 0.0 if by_cluster else LINE * 1.25 * (-(-len(looks) // 2) + 1)
    height = down * (SIDE + 0.2 + LINE * lines) + notes
    figure = new_figure(across * SIDE, height, heading=heading, size=10, notes=notes)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes[len(layers) :]:
        axis.set_axis_off()
    for axis, own in zip(axes, layers, strict=False):
        for name, (colour, marker) in reversed(looks.items()):  # the unknown below all others
            x, y = np.array(own.positions)[np.array(own.groups) == name].T
            label = _safe(textwrap.shorten(name or "not known", 54, placeholder=" …"))
            look: Any = {"c": colour, "marker": marker, "lw": 0.5, "alpha": 0.8, "label": label}
            axis.scatter(x, y, s=9, **look)
        axis.set(xticks=[], yticks=[])
        axis.set_aspect("equal", adjustable="datalim")
        axis.set_title(own.name, fontsize=9)
        if by_cluster:
            box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "black", "lw": 0.5}
            look = {"fontsize": 8, "ha": "left", "va": "center", "bbox": box}
            look |= {"xytext": (5, 0), "textcoords": "offset points"}  # beside the point
            for sign in own.labels:
                axis.annotate(sign.text.partition(":")[0], (sign.x, sign.y), **look)
            named = sorted(sign.text for sign in own.labels)
            short = [textwrap.shorten(text, LETTERS, placeholder=" …") for text in named]
            axis.set_xlabel(_safe("\n".join(short)), fontsize=8, loc="left")
    if not by_cluster:
        handles = axes[0].get_legend_handles_labels()[0][::-1]
        figure.legend(handles=handles, ncols=2, loc="lower center", fontsize=8, frameon=False)
    return figure


def _safe(text: str) -> str:
    """A text that matplotlib reads as no mathematics."""
    return isolated(text.replace("$", r"\$"))
