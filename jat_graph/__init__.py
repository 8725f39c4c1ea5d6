"""Long texts in pretrained transformers by clusters of attention; graphs and PyG layers inside."""

from importlib import import_module

import lazy_loader

__version__ = "0.2.0"

# Imported at their first use, from the modules that __init__.pyi names.
_own, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name in __all__:
        return _own(name)
    try:
        return import_module(f"jat_graph.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"jat_graph.{name}":
            raise
    raise AttributeError(f"module 'jat_graph' has no attribute {name!r}")
