"""Which implementation of the inner loops runs on a device."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from types import ModuleType

import torch


@cache
def implementation(device: torch.device) -> ModuleType:
    """Return the package whose inner loops run on a device.

    Nothing imports numba or Triton before this asks for it.
    """
    if device.type == "cpu":
        from jat_graph.kernels import cpu

        return cpu
    if device.type == "cuda" and find_spec("triton") is not None:  # torch for Windows has none
        from jat_graph.kernels import cuda

        return cuda
    from jat_graph.kernels import portable

    return portable
