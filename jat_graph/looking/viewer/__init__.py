"""One file that shows heads, jumps, trees and maps in any browser, without a network."""

from jat_graph.looking.viewer.content import AtlasLabel, AtlasLayer, AtlasPoint, AtlasView
from jat_graph.looking.viewer.hooks import hooked_tensors
from jat_graph.looking.viewer.page import Page, head_view, map_view

__all__ = [
    "AtlasLabel",
    "AtlasLayer",
    "AtlasPoint",
    "AtlasView",
    "Page",
    "head_view",
    "hooked_tensors",
    "map_view",
]
