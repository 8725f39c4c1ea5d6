"""Run the command line inside the test, on the tiny BERT that the examples' tests have, too."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from jat_graph.looking.cli.app import app
from tests.examples.conftest import tiny_model as tiny_model

Run = Callable[..., Result]


@pytest.fixture
def run(tiny_model: str) -> Run:
    """Return a function that runs one command; M is the tiny model, and errors are raised here."""

    def call(*arguments: object, columns: int = 200) -> Result:
        words = [tiny_model if argument == "M" else str(argument) for argument in arguments]
        environment = {"COLUMNS": str(columns)}
        return CliRunner(env=environment).invoke(app, words, catch_exceptions=False)

    return call
