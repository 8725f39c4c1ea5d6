"""One file that shows heads, jumps, trees and maps in any browser, without a network."""

from jat_graph.viewer.content import AtlasLabel, AtlasLayer, AtlasPoint, AtlasView

__all__ = ["AtlasLabel", "AtlasLayer", "AtlasPoint", "AtlasView"]
