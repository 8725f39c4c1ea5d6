"""Reading long inputs along trees of keys: who decides what is read, and who reads it.

It imports nothing of jumps.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
