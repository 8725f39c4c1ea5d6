"""The atlas of a word: what a model makes of it in many sentences, as points in the plane."""

from __future__ import annotations

import logging
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.checks.numbers import check_integer
from jat_graph.directions import isolated
from jat_graph.probes.contexts import Context, Uses, find_uses, plain
from jat_graph.probes.corpora import WordNet
from jat_graph.probes.findings import CONFIDENCE, Findings, Floats, Integers
from jat_graph.probes.pictures import COLOURS, MARKERS, new_figure
from jat_graph.probes.words import WordReader, check_layers
from jat_graph.progress import track_progress
from jat_graph.viewer import AtlasView, Page
from jat_graph.viewer.content import AtlasLabel, AtlasLayer, AtlasPoint, PageContent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LEAST = 5  # sentences: fewer make no map
UMAP, COMPONENTS = "UMAP", "PCA"
NOISE = 1e-3  # of a first layout, since UMAP divides by how far it reaches each way
SAME = 1e-4  # of a state's length: what is nearer is one point
MOST_CLUSTERS = 8
PRIOR = 50.0  # words that every cluster is thought to have had before, drawn from all
SURELY, TELLING = 1.96, 6  # standard deviations from no difference, and words of a cluster
CLUSTER, TAG, SENSE = "cluster", "part of speech", "sense"
ALL, OTHER, UNKNOWN = "all", "other", ""
MOST_GROUPS = len(COLOURS)
ACROSS, SIDE, LINE, LETTERS = 4, 2.9, 0.16, 46  # panels in a row; inches; letters of a name

logger = logging.getLogger(__name__)


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
        return Page(PageContent(f"Uses of {self.settings['word']}", atlases=self.views))

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
    batch_size: int = 32,
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
        batch_size: Most sentences that the model reads at a time. (default: 32)

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
    reader = WordReader(model, tokenizer, folder, batch_size=batch_size)
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
        caption=_caption(uses, kinds, method),
        table=pd.DataFrame([row for one in maps for row in one.rows(kinds)]),
        settings={
            "word": uses.word,
            "sentences_read": uses.read,
            "sentences_found": uses.found,
            "sentences_shown": len(kept),
            "layers": list(chosen),
            "layout": method,
            "seed": seed,
        },
        figures={name: _draw(uses, maps, kind, kinds, method) for kind, name in names.items()},
        views=tuple(_view(uses, maps, kind, kinds) for kind in (CLUSTER, *kinds)),
    )


@dataclass(frozen=True)
class LayerMap:
    """The uses of a word after one layer.

    Args:
        layer: The layer; 0 is the embeddings.
        points: Where each use lies, ``[N, 2]``.
        clusters: The cluster of each, ``[N]``.
        silhouette: Mean silhouette of the clusters, from -1 to 1; NaN where there is one alone.
        words: The words that tell each cluster from the others.
    """

    layer: int
    points: Floats
    clusters: Integers
    silhouette: float
    words: Mapping[int, Sequence[str]]

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
        for cluster in (*self.words, ALL):
            own = np.ones(len(self.clusters), bool) if cluster == ALL else self.clusters == cluster
            known = cluster == ALL and not np.isnan(self.silhouette)
            row: dict[str, Any] = {
                "layer": self.layer,
                "cluster": ALL if cluster == ALL else str(int(cluster) + 1),
                "sentences": int(own.sum()),
                "silhouette": self.silhouette if known else None,
                "telling words": "" if cluster == ALL else ", ".join(self.words[int(cluster)]),
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
    tags = [own.tags and own.tags[at] for own, at in pairs]
    senses = [own.senses and own.senses[at] for own, at in pairs]
    if wordnet is not None:
        senses = [own and f"{own} {wordnet.definition(own)}" for own in senses]
    return {name: own for name, own in ((TAG, tags), (SENSE, senses)) if any(own)}


def _caption(uses: Uses, kinds: Mapping[str, Sequence[str | None]], method: str) -> str:
    """Say where the points come from, and against what shares are to be held."""
    parts = [
        f"{len(uses.indices)} sentences with {uses.word!r}, of {uses.found} among {uses.read} that "
        f"were read; each is a point, the word's state there, laid out by {method}, in which only "
        "who is near whom means something. Clusters are of the states, not of the layout, and are "
        "few where the silhouette, from -1 to 1, is best; near 0 there are no parts to speak of. "
        "Telling words stand in surely more sentences of a cluster than of the others."
    ]
    for kind, own in kinds.items():
        known = Counter(name for name in own if name)
        (common, most), total = known.most_common(1)[0], known.total()
        parts.append(
            f"Of {total} uses whose {kind} is known, {most / total:.0%} are {common}: a share in a "
            "cluster says something where its interval is above that."
        )
    return " ".join(parts)


def directions(states: Floats) -> Floats:  # [N, D] -> [N, D]
    """Return states seen from their middle, all of one length; 0 where they do not differ."""
    middle = states.mean(0)
    lengths = np.linalg.norm(states - middle, axis=1, keepdims=True)
    apart = lengths > SAME * np.linalg.norm(states, axis=1, keepdims=True)
    found: Floats = np.where(apart, (states - middle) / np.where(apart, lengths, 1), 0.0)
    return found


def lay_out(rows: Sequence[Floats], seed: int) -> tuple[Floats, str]:
    """Lay out each layer, ``[P, N, 2]`` with root mean square 1 around 0, and say by which method.

    UMAP begins each layer where the one below ended, and each layout is turned or mirrored onto
    the one below, since neither changes what is near what.
    """
    from scipy.linalg import orthogonal_procrustes
    from sklearn.decomposition import PCA

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportWarning)  # of a part that wants TensorFlow
            import umap
    except ImportError:
        message = "umap-learn is not installed, so PCA lays points out: pip install 'jat_graph[%s]'"
        logger.warning(message, "atlas")
        umap = None
    found: list[Floats] = []
    for points in rows:
        placed = np.zeros((len(points), 2))
        if points.any():  # or there is no spread to explain
            goes_on = umap is not None and bool(found) and bool(found[-1].any())
            placed = found[-1] if goes_on else PCA(2, svd_solver="full").fit_transform(points)
            placed = _unit(placed)
            if umap is not None:
                start = placed + NOISE * np.random.default_rng(seed).normal(size=placed.shape)
                options = {"n_neighbors": min(15, len(points) - 1), "n_epochs": 200, "n_jobs": 1}
                umapped = umap.UMAP(init=start, random_state=seed, **options)
                placed = _unit(umapped.fit_transform(points))
        if found:
            turn, _ = orthogonal_procrustes(placed, found[-1])
            placed = placed @ turn
        found.append(placed)
    return np.stack(found), COMPONENTS if umap is None else UMAP


def _unit(points: Floats) -> Floats:
    """A layout around 0 with root mean square 1; one without spread stays at 0."""
    centred = points - points.mean(0)
    size = np.sqrt((centred**2).sum(1).mean())
    found: Floats = centred / size if size > 0 else centred
    return found


def find_clusters(points: Floats, seed: int) -> tuple[Integers, float]:
    """Part points by k-means into as many clusters as give the best silhouette, and return it.

    They are numbered from the largest one. What has no parts that could be told apart is one
    cluster, without a silhouette.
    """
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.metrics import pairwise_distances, silhouette_score

    most = min(MOST_CLUSTERS, len(np.unique(points.round(4), axis=0)) - 1)
    labels, best = np.zeros(len(points), np.int64), float("nan")
    if most < 2:
        return labels, best
    distances = pairwise_distances(points)
    main = PCA(min(30, *points.shape), svd_solver="full").fit_transform(points)  # takes less time
    for number in range(2, most + 1):
        found = KMeans(number, n_init=5, random_state=seed).fit_predict(main)
        score = float(silhouette_score(distances, found, metric="precomputed"))
        if not score <= best:
            labels, best = found.astype(np.int64), score
    order = np.argsort(-np.bincount(labels), kind="stable")
    return np.argsort(order)[labels], best


def renamed(labels: Integers, below: Integers) -> Integers:
    """Give clusters the numbers of those below whose points they have, and others new ones."""
    from scipy.optimize import linear_sum_assignment

    size = 1 + max(labels.max(), below.max())
    shared = np.zeros((size, size), np.int64)
    np.add.at(shared, (labels, below), 1)
    own, other = linear_sum_assignment(shared, maximize=True)
    found: Integers = other[np.argsort(own)][labels]
    return found


def telling_words(uses: Uses, labels: Integers) -> dict[int, list[str]]:
    """Name the words of sentences that tell each cluster from all others, the surest first.

    Reference:
        Monroe et al., *Fightin' Words*, Political Analysis, 2008, equations 15 to 22: the log-odds
        with a prior, in standard deviations; of sentences with a word, not of its occurrences.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    own, clusters = plain(uses.word), np.unique(labels)

    def words_of(context: Context) -> set[str]:
        words = set(map(plain, context.words)) - {own}
        return {word for word in words if word[:1].isalpha()}

    nothing: dict[int, list[str]] = {int(one): [] for one in clusters}
    sets = [words_of(context) for context in uses.contexts]
    often = Counter(word for some in sets for word in some)
    known = [word for word in sorted(often) if often[word] >= 2]
    if len(clusters) == 1 or len(known) < 2:
        return nothing
    counter = CountVectorizer(vocabulary=known, analyzer=lambda words: words)
    present = counter.transform(sets).toarray()
    counts = np.stack([present[labels == one].sum(0) for one in clusters])
    prior = PRIOR * counts.sum(0) / counts.sum()
    inside, rest = counts + prior, counts.sum(0) - counts + prior
    odds = (np.log(one) - np.log(one.sum(1, keepdims=True) - one) for one in (inside, rest))
    surety = np.subtract(*odds) / np.sqrt(1 / inside + 1 / rest)
    surest = np.argsort(-surety, axis=1, kind="stable")[:, :TELLING]
    return {
        int(one): [known[word] for word in chosen if row[word] > SURELY]
        for one, row, chosen in zip(clusters, surety, surest, strict=True)
    }


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
        if kind == CLUSTER:
            _write_words(axis, own, looks)
    if kind != CLUSTER:
        handles = [_handle(look, name) for name, look in looks.items()]
        figure.legend(handles=handles, loc="lower center", ncols=across, fontsize=8, frameon=False)
    return figure


def _write_words(axis: Axes, own: LayerMap, looks: Mapping[str, tuple[str, str]]) -> None:
    """Number the clusters, and write their words below."""
    for cluster in own.words:
        box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "black", "lw": 0.5}
        look: Any = {"fontsize": 7, "ha": "center", "va": "center", "bbox": box}
        axis.annotate(str(cluster + 1), own.middle(cluster), **look)
    handles = [
        _handle(looks[str(cluster + 1)], f"{cluster + 1}: {', '.join(words)}")
        for cluster, words in sorted(own.words.items())
    ]
    room: Any = {"handletextpad": 0.1, "labelspacing": 0.25, "borderaxespad": 0.1}
    below: Any = {"loc": "upper left", "bbox_to_anchor": (-0.03, -0.01)}
    axis.legend(handles=handles, fontsize=7, frameon=False, **below, **room)


def _handle(look: tuple[str, str], name: str) -> Any:
    from matplotlib.lines import Line2D

    label = textwrap.shorten(name or "not known", LETTERS, placeholder=" …")
    return Line2D([], [], color=look[0], marker=look[1], ls="", ms=4, label=_safe(label))


def _safe(text: str) -> str:
    """A text that matplotlib reads as no mathematics."""
    return isolated(text.replace("$", r"\$"))
