"""How patterns are run: two backends, the choice among them, and attention as a function."""

import lazy_loader

# Imported at their first use, from the modules that __init__.pyi names.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
