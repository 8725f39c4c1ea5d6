"""Results that nobody ran: a grid of small tasks whose answers are drawn at random."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jat_graph.lab.studies import Grid, Record, Results
from jat_graph.tasks import get_task

TASKS = ("rte", "stsb")
ARMS: tuple[dict[str, Any], ...] = (
    {"name": "base"},
    {"name": "JAT", "heads": "paper", "tune": True},
    {"name": "JAT†", "heads": "efficient"},
)
EXAMPLES = 60


def grid(**changes: Any) -> Grid:
    """Return a grid of two tasks and three arms, with any key replaced."""
    content: dict[str, Any] = {
        "name": "glue",
        "title": "Jump heads on GLUE",
        "source": "Table 1",
        "budget": "a minute",
        "tasks": list(TASKS),
        "seeds": 3,
        "arms": [dict(arm) for arm in ARMS],
        "tuning": {"thresholds": [4.0, 6.0]},
        "paper": {
            "model": "BERT-base",
            "base": {"rte": 69.3, "stsb": 89.0},
            "JAT": {"rte": 73.3, "stsb": 90.5},
        },
    }
    return Grid.from_dict(content | changes)


def results(of: Grid | None = None, records: Sequence[Record] | None = None) -> Results:
    """Return results of a grid; without records, every cell is finished."""
    of = grid() if of is None else of
    cells = [(t, a.name, s) for t in of.tasks for a in of.arms for s in range(of.seeds)]
    return Results(
        grid=of,
        fingerprint="0123456789ab",
        model="a-model",
        data="glue",
        versions={"torch": "2.13.0"},
        machine={"processor": "A Processor", "cores": 2},
        records=tuple(record(*cell) for cell in cells) if records is None else tuple(records),
    )


def record(task: str, arm: str, seed: int, skill: float | None = None) -> Record:
    """Return a finished cell that is right as often as its arm's skill says, more or less."""
    said, right = answers(task, seed, 0.6 + 0.1 * len(arm) / 4 if skill is None else skill)
    return Record(
        task=task,
        arm=arm,
        seed=seed,
        scores={"validation": get_task(task).measure(said, right)},
        answers={"validation": {"said": said, "right": right}},
        seconds=10.0 + len(arm) + seed,
        examples={"train": 100, "validation": EXAMPLES},
        threshold=4.0 if arm == "JAT" else None,
    )


def answers(task: str, seed: int, skill: float) -> tuple[list[Any], list[Any]]:
    """Return what was said and what is right, the same for all arms and seeds."""
    truth, draw = np.random.default_rng(0), np.random.default_rng([seed, round(1000 * skill)])
    if task == "stsb":
        scores = truth.uniform(0, 5, EXAMPLES)
        return (
            skill * scores + (1 - skill) * draw.uniform(0, 5, EXAMPLES)
        ).tolist(), scores.tolist()
    right = truth.integers(2, size=EXAMPLES)
    return np.where(draw.random(EXAMPLES) < skill, right, 1 - right).tolist(), right.tolist()


def plain(task: str, arm: str, seed: int, scores: Mapping[str, Mapping[str, Any]]) -> Record:
    """Return a finished cell with scores and nothing else."""
    return Record(task=task, arm=arm, seed=seed, scores=scores)
