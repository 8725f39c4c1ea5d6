"""Layouts of a cloud of uses, its parts, and the words that tell them apart."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jat_graph.probes.contexts import plain
from jat_graph.probes.findings import Floats, Integers

UMAP, COMPONENTS = "UMAP", "PCA"
NOISE = 1e-3  # of a first layout, since UMAP divides by how far it reaches each way
SAME = 1e-4  # of a state's length: what is nearer is one point
MOST_CLUSTERS = 8
PRIOR = 50.0  # words that every cluster is thought to have had before, drawn from all
SURELY, TELLING = 1.96, 6  # standard deviations from no difference, and words of a cluster
logger = logging.getLogger(__name__)


def directions(states: Floats) -> Floats:  # [N, D] -> [N, D]
    """Return states seen from their middle, all of one length; 0 where they do not differ."""
    middle = states.mean(0)
    lengths = np.linalg.norm(states - middle, axis=1, keepdims=True)
    apart = lengths > SAME * np.linalg.norm(states, axis=1, keepdims=True)
    return np.where(apart, (states - middle) / np.where(apart, lengths, 1), 0.0)


def lay_out(rows: Sequence[Floats], seed: int) -> tuple[Floats, str]:
    """Lay out each layer, [P, N, 2] with root mean square 1 around 0, and say by which method."""
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
        placed: Floats = np.zeros((len(points), 2))
        if points.any():  # or there is no spread to explain
            goes_on = umap is not None and bool(found) and bool(found[-1].any())
            placed = found[-1] if goes_on else PCA(2, svd_solver="full").fit_transform(points)
            placed = _unit(placed)
            if umap is not None:
                start = placed + NOISE * np.random.default_rng(seed).normal(size=placed.shape)
                options = {"n_neighbors": min(15, len(points) - 1), "n_epochs": 200, "n_jobs": 1}
                umapped = umap.UMAP(init=start, random_state=seed, **options)
                placed = _unit(umapped.fit_transform(points))
        if found:  # turned or mirrored onto the one below, which leaves near what is near
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
    """Part points into clusters, the largest first, as many as give the best silhouette, or one."""
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


def telling_words(
    word: str, sentences: Sequence[Sequence[str]], labels: Integers
) -> dict[int, list[str]]:
    """Name the words of sentences with a word that tell each cluster from all others."""
    clusters = np.unique(labels)
    sets = [set(map(plain, words)) - {plain(word)} for words in sentences]
    often = Counter(own for some in sets for own in some if own[:1].isalpha())
    known = [own for own in sorted(often) if often[own] >= 2]
    if len(clusters) == 1 or len(known) < 2:
        return {int(one): [] for one in clusters}
    present = np.array([[own in some for own in known] for some in sets])
    counts = np.stack([present[labels == one].sum(0) for one in clusters])
    # Log-odds with a prior, in standard deviations (Monroe et al., *Fightin' Words*, Political
    # Analysis, 2008, equations 15 to 22).
    prior = PRIOR * counts.sum(0) / counts.sum()
    inside, rest = counts + prior, counts.sum(0) - counts + prior
    odds = (np.log(one) - np.log(one.sum(1, keepdims=True) - one) for one in (inside, rest))
    surety = np.subtract(*odds) / np.sqrt(1 / inside + 1 / rest)
    surest = np.argsort(-surety, axis=1, kind="stable")[:, :TELLING]
    return {
        int(one): [known[index] for index in chosen if row[index] > SURELY]
        for one, row, chosen in zip(clusters, surety, surest, strict=True)
    }
