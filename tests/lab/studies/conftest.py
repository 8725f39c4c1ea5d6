"""A plan on a tiny model and a tiny corpus."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jat_graph.lab.studies import Plan
from tests.lab.studies.support import small_grid
from tests.training.conftest import cola_dir, one_thread, options, tiny_model

__all__ = ["cola_dir", "one_thread", "options", "tiny_model"]

Plans = Callable[..., Plan]


@pytest.fixture
def plans(tiny_model: str, cola_dir: str) -> Plans:
    """Return a plan of the small grid, with any key of it replaced."""

    def build(**changes: Any) -> Plan:
        return Plan(small_grid(**changes), tiny_model, Path(cola_dir), "cpu")

    return build
