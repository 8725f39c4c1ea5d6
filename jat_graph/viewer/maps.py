"""A page of maps alone."""

from __future__ import annotations

from collections.abc import Sequence

from jat_graph.viewer.content import AtlasView, PageContent
from jat_graph.viewer.page import Page


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
        >>> map_view(AtlasView("bark", points, [layer])).content.title
        'Map'
    """
    some = (atlases,) if isinstance(atlases, AtlasView) else tuple(atlases)
    if not some:
        raise ValueError("atlases must be one or more, got none")
    return Page(PageContent(title, atlases=some))
