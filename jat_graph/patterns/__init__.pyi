import typing

from .base import Intersection, KeyRange, Pattern, Union
from .documents import Documents, GlobalMask
from .factorised import Fixed, Strided, reaches_all
from .parsing import bigbird, longformer, parse_pattern
from .positions import Causal, DilatedWindow, GlobalTokens, LocalBlocks, RandomBlocks, Window

# jat_graph.attention.patterns has them.
PatternChoice: typing.Any
explain_pattern: typing.Any
pattern_attention: typing.Any

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
