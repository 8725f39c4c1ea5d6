"""Which form computes on a device."""

from importlib.util import find_spec
from typing import Any

import torch

HAS_NUMBA = False
HAS_TRITON = find_spec("triton") is not None


def choose(device: torch.device, plain: Any, numba: Any, triton: Any, slow: bool = False) -> Any:
    """Return Triton's form on CUDA, and the plain one elsewhere."""
    return triton if device.type == "cuda" and HAS_TRITON else plain
