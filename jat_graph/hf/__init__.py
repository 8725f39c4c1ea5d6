"""Jump heads, and heads of other kinds, in models of Hugging Face transformers.

Importing it registers the attention functions "jat" and "clustered" with transformers, and a hook
with torch that sees models being built, and changes nothing of them.
"""

import lazy_loader

import jat_graph.hf.by_name  # noqa: F401  # which registers, with jat_graph.hf.names

# Imported at their first use, from the modules that __init__.pyi names.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
