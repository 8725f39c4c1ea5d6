"""Pictures of what jump heads do. Needs the extra ``viz`` (matplotlib)."""

from jat_graph.viz.heads import draw_head, save_figure

__all__ = ["draw_head", "save_figure"]
