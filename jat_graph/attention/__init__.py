"""Jump attention: propagated queries and keys, and the softmax over their products."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from jat_graph.attention.api import jump_attention, jump_operator

__all__ = [
    "jump_attention",
    "jump_operator",
]

# Imported at their first use: nobody waits for what is not used.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "api": ["jump_attention", "jump_operator"],
    },
)
