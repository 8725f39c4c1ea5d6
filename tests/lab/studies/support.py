"""A small grid, and records that nobody trained."""

import re
from copy import deepcopy
from typing import Any

from jat_graph.lab.studies import Grid, Record

CONTENT: dict[str, Any] = {
    "name": "small",
    "title": "A small grid",
    "source": "Table 0",
    "kind": "train",
    "tasks": ["cola"],
    "seeds": 2,
    "budget": "seconds",
    "training": {"epochs": 1, "batch_size": 16, "max_length": 16, "learning_rate": 3e-3},
    "arms": [
        {"name": "base"},
        {"name": "JAT", "heads": "paper", "settings": {"heads": "6/12", "threshold": 4.0}},
    ],
}


def small_grid(**changes: Any) -> Grid:
    """Return a grid of four runs of a second, with any key replaced."""
    return Grid.from_dict(deepcopy(CONTENT) | changes)


def made_up(task: str = "cola", arm: str = "base", seed: int = 0, **fields: Any) -> Record:
    """Return a finished cell."""
    settings: dict[str, Any] = {
        "scores": {"validation": {"matthews": 0.5}},
        "answers": {"validation": {"said": [1, 0], "right": [1, 1]}},
        "seconds": 2.0,
        "steps": 3,
        "examples": {"train": 48, "validation": 2},
    }
    return Record(task, arm, seed, **(settings | fields))


def narrow(text: str) -> str:
    """Return Markdown without what only makes its columns stand in line."""
    return re.sub(r"-{3,}", "---", re.sub(" +", " ", text))
