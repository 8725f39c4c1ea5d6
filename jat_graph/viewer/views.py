"""Pages of what is there already: attention, as the known viewers take it, and maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from jat_graph.checks.numbers import check_integer
from jat_graph.viewer.content import AFTER, AtlasView, HeadContent, TextContent
from jat_graph.viewer.links import links_with_room, strongest_links
from jat_graph.viewer.page import Page


def head_view(
    attention: Sequence[Tensor],
    tokens: Sequence[str],
    sentence_b_start: int | None = None,
    *,
    title: str = "Attention",
) -> Page:
    """Return a page of all heads' attention, from tensors that are there already.

    Args:
        attention: Attention probabilities of each layer, as a model of transformers gives them with
            ``output_attentions=True``.
        tokens: What each token says.
        sentence_b_start: The first token of a second sentence, which a line sets apart. (default:
            None)
        title: Title of the page. (default: ``"Attention"``)

    Returns:
        The page; a notebook shows it, and ``save`` writes it.

    Shapes:
        - ``attention``: ``[1, H, L, L]`` or ``[H, L, L]`` each

    Raises:
        ValueError: If there is no layer, tensors do not fit the tokens, hold more than one text or
            what is not finite, or the page would be too large.

    Reference:
        The arguments are those of ``bertviz.head_view``: Vig, *A Multiscale Visualization of
        Attention in the Transformer Model*, 2019.
    """
    listed = isinstance(tokens, Sequence) and not isinstance(tokens, str)
    if not listed or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ValueError(f"tokens must be one or more strings in a list, got {tokens!r:.60}")
    words = tuple(tokens)
    layers = [_check_layer(n, layer, len(words)) for n, layer in enumerate(attention)]
    if not layers:
        raise ValueError("attention must have at least one layer, got none")
    if sentence_b_start is not None:
        check_integer("sentence_b_start", sentence_b_start, least=1, below=len(words))
    number = sum(len(layer) for layer in layers)
    most = links_with_room(number * len(words), number)
    heads = tuple(
        HeadContent(n, head, {AFTER: strongest_links(matrix, most)})
        for n, layer in enumerate(layers)
        for head, matrix in enumerate(layer)
    )
    text = TextContent(" ".join(words), words, heads, second=sentence_b_start)
    return Page(title, (text,))


def map_view(atlases: AtlasView | Sequence[AtlasView], *, title: str = "Map") -> Page:
    """Return a page of maps, a point for each sentence, layer by layer.

    Args:
        atlases: One map or several, between which the page lets one choose.
        title: Title of the page. (default: ``"Map"``)

    Returns:
        The page; a notebook shows it, and ``save`` writes it.

    Raises:
        ValueError: If there is no map.

    Example:
        >>> from jat_graph.viewer import AtlasLayer, AtlasPoint, AtlasView, map_view
        >>> points = [AtlasPoint("bark", "dogs bark"), AtlasPoint("bark", "the bark of a tree")]
        >>> layer = AtlasLayer("layer 0", [(0.0, 0.0), (1.0, 2.0)], ["VERB", "NOUN"])
        >>> map_view(AtlasView("bark", points, [layer])).title
        'Map'
    """
    some = (atlases,) if isinstance(atlases, AtlasView) else tuple(atlases)
    if not some:
        raise ValueError("atlases must be one or more, got none")
    return Page(title, atlases=some)


def _check_layer(number: int, layer: Any, length: int) -> Tensor:  # [H, L, L]
    name, got = f"attention[{number}]", list(getattr(layer, "shape", [type(layer).__name__]))
    if len(got) not in (3, 4) or got[-2:] != [length] * 2 or (len(got) == 4 and got[0] != 1):
        raise ValueError(
            f"{name} must be of one text, [1, H, {length}, {length}] for its {length} tokens, "
            f"got {got}"
        )
    if not bool(torch.isfinite(layer).all()):
        raise ValueError(f"{name} must be finite, got values that are not")
    heads: Tensor = layer.detach().cpu().float().reshape(-1, length, length)
    return heads
