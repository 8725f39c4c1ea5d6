"""How numba compiles the loops: parallel, kept on disk, with IEEE arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numba
import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def parallel_loop(function: Function) -> Function:
    """Compile a function whose ``numba.prange`` loops run on as many threads as torch does."""
    compiled = _compile(function, parallel=True)

    def run(*arguments: Any) -> Any:
        threads = torch.get_num_threads()
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        result = compiled(*arguments)
        # Both run on one pool of OpenMP threads, and numba's start sets the number for torch, too.
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        return result

    return run  # type: ignore[return-value]


def loop(function: Function) -> Function:
    """Compile a function that compiled functions call."""
    return _compile(function)


def summing_loop(function: Function) -> Function:
    """Compile a function that compiled functions call, whose sums may be taken in any order."""
    return _compile(function, fastmath={"contract", "reassoc"})


def _compile(function: Function, **options: Any) -> Function:
    # No fastmath for votes: each is a product as IEEE rounds it, and NaN never votes.
    build = partial(numba.njit, nogil=True, error_model="numpy", **options)
    try:
        compiled: Function = build(cache=True)(function)
    except RuntimeError:  # nowhere to write: neither beside the file nor in the user's cache
        compiled = build()(function)
    return compiled
