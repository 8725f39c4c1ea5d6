"""The graph as something that multiplies: one operator class a structure."""

import lazy_loader

# Imported at their first use, from the modules that __init__.pyi names.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
