"""States in the plane: neighbours stay neighbours, and layers follow one another."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from types import ModuleType

Floats: TypeAlias = NDArray[np.floating[Any]]

UMAP, COMPONENTS = "UMAP", "PCA"
NEIGHBOURS, EPOCHS = 15, 200
NOISE = 1e-3  # of a first layout, since UMAP divides by how far it reaches each way
SAME = 1e-4  # of a state's length: what is nearer is one point

logger = logging.getLogger(__name__)


def directions(states: Floats) -> Floats:  # [N, D] -> [N, D]
    """States seen from their middle, all of one length; 0 where they do not differ."""
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
    umap = _load_umap()
    found: list[Floats] = []
    for points in rows:
        goes_on = umap is not None and bool(found) and bool(found[-1].any())
        first = found[-1] if goes_on else _pca(points)
        placed = first if umap is None else _umap(umap, points, first, seed)
        found.append(turned(placed, found[-1]) if found else unit(placed))
    return np.stack(found), COMPONENTS if umap is None else UMAP


def _load_umap() -> ModuleType | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportWarning)  # of a part that wants TensorFlow
            import umap
    except ImportError:
        message = "umap-learn is not installed, so PCA lays points out: pip install 'jat_graph[%s]'"
        logger.warning(message, "atlas")
        return None
    module: ModuleType = umap
    return module


def _pca(points: Floats) -> Floats:
    from sklearn.decomposition import PCA

    if not points.any():  # no spread to explain
        return np.zeros((len(points), 2))
    placed: Floats = PCA(2, svd_solver="full").fit_transform(points)
    return unit(placed)


def _umap(umap: ModuleType, points: Floats, first: Floats, seed: int) -> Floats:
    if not points.any():
        return np.zeros((len(points), 2))
    near = min(NEIGHBOURS, len(points) - 1)
    options = {"n_neighbors": near, "n_epochs": EPOCHS, "random_state": seed, "n_jobs": 1}
    start = first + NOISE * np.random.default_rng(seed).normal(size=first.shape)
    placed: Floats = umap.UMAP(init=start, **options).fit_transform(points)
    return placed


def unit(points: Floats) -> Floats:
    """A layout around 0 with root mean square 1; one without spread stays at 0."""
    centred = points - points.mean(0)
    size = np.sqrt((centred**2).sum(1).mean())
    found: Floats = centred / size if size > 0 else centred
    return found


def turned(points: Floats, onto: Floats) -> Floats:
    """A layout turned or mirrored onto another, as near as it comes."""
    from scipy.linalg import orthogonal_procrustes

    own = unit(points)
    turn, _ = orthogonal_procrustes(own, onto)
    found: Floats = own @ turn
    return found
