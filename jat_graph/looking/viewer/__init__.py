"""One file that shows heads, jumps and trees in any browser, without a network."""

from jat_graph.looking.viewer.page import Page, head_view

__all__ = ["Page", "head_view"]
