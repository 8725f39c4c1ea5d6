"""Walk over stones from token to token, by the links alone."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from jat_graph.kernels.choice import implementation


class StoneScores(NamedTuple):
    """Scores with some stones, and which of them link: b = max(0, ±z − t), or 1 where it is not 0.

    Args:
        columns: Standard scores z; NaN, which never links, where masked.
        threshold: t of each graph, at least 0.
        sides: 1, or 2: low scores link, too, to stones of their own.
        hard: Whether every link is 1.

    Shapes:
        - ``columns``: ``[G, U, L]``; ``threshold``: ``[G]``
    """

    columns: Tensor
    threshold: Tensor
    sides: int
    hard: bool


def share_out(scores: StoneScores, x: Tensor, total: Tensor, degree: Tensor) -> Tensor:
    """Let every token take the means of the stones that it stands on.

    Args:
        scores: Scores with some stones.
        x: Features ``[G, L, D]``.
        total: ``[G, L, D]``, to which Σ_j b_ij mean_j is added.
        degree: ``[G, L]``, to which Σ_j b_ij is added.

    Returns:
        mean_j = Σ_i b_ij x_i / Σ_i b_ij, stones of high scores first; 0 where nobody stands.

    Shapes:
        - **output:** ``[G, sides · U, D]``

    Reference:
        Stones are this library's own.
    """
    means: Tensor = implementation(x.device).share(*scores, x, total, degree)
    return means


def give_back(
    scores: StoneScores, x: Tensor, means: Tensor, grad: Tensor, to_degree: Tensor, to_x: Tensor
) -> Tensor:
    """Return the gradient of the scores of :func:`share_out`, straight through hard links.

    Args:
        scores: Scores with some stones.
        x: Features ``[G, L, D]``.
        means: What :func:`share_out` returned, ``[G, sides · U, D]``.
        grad: Gradient of the total, ``[G, L, D]``.
        to_degree: Gradient of the degree, ``[G, L]``.
        to_x: ``[G, L, D]``, to which the gradient of ``x`` is added.

    Returns:
        The gradient, 0 where nothing links.

    Shapes:
        - **output:** ``[G, U, L]``

    Reference:
        Stones are this library's own.
    """
    to_columns: Tensor = implementation(x.device).give(*scores, x, means, grad, to_degree, to_x)
    return to_columns
