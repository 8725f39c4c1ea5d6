"""Training models with heads of ours: rates of strengths, a Trainer, and batches with graphs.

The scripts that train on tasks and on files of one's own are in ``examples/`` of a clone.
"""

import lazy_loader

# Imported at their first use, from the modules that __init__.pyi names.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
