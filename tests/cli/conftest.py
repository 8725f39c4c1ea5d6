"""Run the command line inside the test, and the models it works on."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from jat_graph.cli.app import app
from tests.training.conftest import cola_dir, one_thread, tiny_model

__all__ = ["cola_dir", "one_thread", "tiny_model"]

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Return a function that runs one command; what it raises is raised here."""

    def call(*arguments: object) -> Result:
        words = [str(argument) for argument in arguments]
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, words, catch_exceptions=False)

    return call
