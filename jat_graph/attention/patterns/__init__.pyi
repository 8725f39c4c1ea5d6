from .api import explain_pattern, pattern_attention
from .backends import PatternChoice

__all__ = [
    "PatternChoice",
    "explain_pattern",
    "pattern_attention",
]
