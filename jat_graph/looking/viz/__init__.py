"""Pictures of heads and of attention patterns. Needs the extra ``viz`` (matplotlib)."""

from jat_graph.looking.viz.clusters import draw_descent, draw_fidelity
from jat_graph.looking.viz.figures import save_figure
from jat_graph.looking.viz.heads import draw_head
from jat_graph.looking.viz.patterns import draw_patterns

__all__ = ["draw_descent", "draw_fidelity", "draw_head", "draw_patterns", "save_figure"]
