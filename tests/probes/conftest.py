"""The small WordNet, and the real one where it is installed."""

from pathlib import Path
from typing import Any

import nltk.data
import pytest

from jat_graph.probes import open_wordnet
from tests.probes.support import write_wordnet


@pytest.fixture(autouse=True)
def told_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nltk forget the folders that a test tells it of."""
    monkeypatch.setattr(nltk.data, "path", list(nltk.data.path))


@pytest.fixture
def small_wordnet(tmp_path: Path) -> Any:
    return open_wordnet(write_wordnet(tmp_path / "wordnet"))


@pytest.fixture
def wordnet() -> Any:
    """WordNet 3.0."""
    try:
        return open_wordnet()
    except ValueError as error:
        pytest.skip(str(error))
