"""The inner loops: one file an operation, each in torch, in numba (CPU) and in Triton (CUDA)."""

import lazy_loader

# Imported at their first use, from the modules that __init__.pyi names.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
