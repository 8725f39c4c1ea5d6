"""Jump heads, and heads of other kinds, in models of Hugging Face transformers.

Importing it registers the attention functions "jat" and "clustered" with transformers, and a hook
with torch that sees models being built, and changes nothing of them.
"""

from typing import Any

import lazy_loader
from transformers import AttentionInterface, AttentionMaskInterface

import jat_graph.hf.by_name  # noqa: F401  # which registers "clustered"
from jat_graph.hf.inputs import jat_mask as _jat_mask
from jat_graph.hf.names import NAMES as _NAMES

# Imported at their first use, from the modules that __init__.pyi names.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _attend(*args: Any, **kwargs: Any) -> Any:
    """Load the attention function of attached heads, which takes this one's place, and call it."""
    from jat_graph.hf.interface import jat_attention_forward

    return jat_attention_forward(*args, **kwargs)


# Without a mask function of the same name, transformers would give every model a mask of None.
for _name in _NAMES:
    AttentionInterface.register(_name, _attend)
    AttentionMaskInterface.register(_name, _jat_mask)
