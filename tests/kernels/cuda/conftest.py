"""What the tests of the Triton kernels share."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module

import pytest


@contextmanager
def _changed(module: str, **constants: int) -> Iterator[None]:
    """Set constants of a module of ours for a while."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in constants.items():
            patch.setattr(import_module(f"jat_graph.kernels.cuda.{module}"), name, value)
        yield


@pytest.fixture(scope="session")
def triton_constants() -> Callable[..., AbstractContextManager[None]]:
    """A function that sets the sizes of tiles and blocks for a while."""
    return _changed
