from .backends import PatternChoice, explain_pattern, pattern_attention

__all__ = ["PatternChoice", "explain_pattern", "pattern_attention"]
