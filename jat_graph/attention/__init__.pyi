from .api import jump_attention, jump_operator
from .clustered import clustered_attention

__all__ = ["clustered_attention", "jump_attention", "jump_operator"]
