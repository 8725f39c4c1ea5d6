"""Run the command line inside the test, and a tiny model that it works on."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from jat_graph.looking.cli.app import app
from tests.examples.conftest import save_tiny_bert

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Return a function that runs one command; what it raises is raised here."""

    def call(*arguments: object) -> Result:
        words = [str(argument) for argument in arguments]
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, words, catch_exceptions=False)

    return call


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of the tiny BERT that the examples' tests have, too."""
    return save_tiny_bert(tmp_path_factory.mktemp("tiny"))
