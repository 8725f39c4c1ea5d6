"""All answers about stones in one picture: which are drawn, and where."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.lab.studies.answers import Answer, draw_answers, stones_answers
from jat_graph.lab.studies.grid import Grid, load_grid
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.rows import experiment_rows
from tests.lab.studies.test_verdicts import results

SCORES = st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3)


def answers(*found: Results) -> list[Answer]:
    return stones_answers((one, experiment_rows(one)) for one in found)


def test_the_first_arm_with_values_answers_for_its_task() -> None:
    found = results([0.5, 0.6], [0.7, 0.9])
    arms: list[dict[str, Any]] = [
        {"name": "plain"},
        {"name": "pairs", "heads": "paper"},
        {"name": "none", "heads": "stones", "settings": {"strength": ["learned", "learned", 0.0]}},
        {"name": "stones", "heads": "stones", "settings": {"pattern": "window:6"}},
        {"name": "few", "heads": "stones", "settings": {"pattern": "window:4"}},
    ]
    records = [
        replace(record, arm=arm["name"])
        for record in found.records
        for arm in arms
        if (record.arm == "plain") == (arm["name"] == "plain")
    ]
    grid = Grid.from_dict({**found.grid.to_dict(), "arms": arms})
    (answer,) = answers(replace(found, grid=grid, records=tuple(records)))
    assert (answer.experiment, answer.verdict.row.arm.name) == ("mine", "stones")
    assert answers(replace(found, grid=replace(grid, question=None))) == answers() == []


@given(SCORES, SCORES, st.floats(1.0, 60.0))
def test_a_line_lies_where_its_verdict_says(
    plain: list[float], stones: list[float], least: float
) -> None:
    (answer,) = answers(results(plain, stones, least=least))
    change, gain = answer.verdict.row.change, answer.verdict.gain
    assert change is not None
    assert gain.mean * least == pytest.approx(100 * change.mean)
    assert answer.verdict.said != "yes" or gain.mean >= 1
    assert answer.verdict.said != "no" or (gain.interval is not None and gain.interval.high < 1)
    (axis,) = draw_answers([answer]).axes
    (point,) = (line for line in axis.lines if line.get_label() == answer.verdict.said)
    assert np.asarray(point.get_xydata()).tolist() == [[gain.mean, 0.0]]
    bars = [bar.get_segments()[0].tolist() for bar in axis.collections]
    interval = gain.interval
    assert bars == ([] if interval is None else [[[interval.low, 0.0], [interval.high, 0.0]]])


def test_fewer_bits_are_a_gain() -> None:
    grid = load_grid("scratch")
    task = "tinyshakespeare"
    records = tuple(
        Record(task, arm, seed, {"validation": {"bits_per_character": bits + noise}})
        for arm, bits in (("plain", 3.4), ("stones", 3.3))
        for seed, noise in enumerate((0.0, 0.01, 0.02 if arm == "plain" else 0.03))
    )
    (answer,) = answers(Results(grid, "", "from scratch", None, {}, {}, records))
    gain = answer.verdict.gain
    assert gain.interval is not None
    assert 0 < gain.interval.low <= gain.mean <= gain.interval.high
    assert gain.mean == pytest.approx((0.1 - 0.01 / 3) / 0.02)
