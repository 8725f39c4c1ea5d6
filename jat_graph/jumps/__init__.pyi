from .api import jump_attention, jump_operator

__all__ = ["jump_attention", "jump_operator"]
