from .backends import PatternChoice, explain_pattern, pattern_attention
from .base import Intersection, KeyRange, Pattern, Union
from .documents import Documents, GlobalMask
from .factorised import Fixed, Strided, reaches_all
from .parsing import bigbird, longformer, parse_pattern
from .positions import Causal, DilatedWindow, GlobalTokens, LocalBlocks, RandomBlocks, Window

__all__ = [
    "Causal",
    "DilatedWindow",
    "Documents",
    "Fixed",
    "GlobalMask",
    "GlobalTokens",
    "Intersection",
    "KeyRange",
    "LocalBlocks",
    "Pattern",
    "PatternChoice",
    "RandomBlocks",
    "Strided",
    "Union",
    "Window",
    "bigbird",
    "explain_pattern",
    "longformer",
    "parse_pattern",
    "pattern_attention",
    "reaches_all",
]
