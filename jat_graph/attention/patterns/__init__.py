"""How patterns are run: four backends, the choice among them, and attention as a function."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from jat_graph.attention.patterns.api import explain_pattern, pattern_attention
    from jat_graph.attention.patterns.backends import PatternChoice

__all__ = [
    "PatternChoice",
    "explain_pattern",
    "pattern_attention",
]

# Imported at their first use: nobody waits for what is not used.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "api": ["explain_pattern", "pattern_attention"],
        "backends": ["PatternChoice"],
    },
)
