"""Results survive JSON, and hold no number that JSON cannot."""

import json
import math

import pytest

from jat_graph.training.results import RunResult, finite
from tests.training.support import result


def test_round_trip() -> None:
    assert RunResult.from_dict(json.loads(json.dumps(result().to_dict()))) == result()


def test_the_first_dev_set_is_primary() -> None:
    assert result().primary == 0.5


@pytest.mark.parametrize(
    ("change", "words"),
    [({"version": 2}, "version 1, got 2"), ({"extra": 1}, "of one run"), ({}, "of one run")],
)
def test_other_files_are_refused(change: dict[str, int], words: str) -> None:
    content = result().to_dict()
    if not change:
        del content["steps"]
    with pytest.raises(ValueError, match=words):
        RunResult.from_dict(content | change)


def test_what_is_not_finite_is_none() -> None:
    assert finite({"a": math.nan, "b": math.inf, "c": 1}) == {"a": None, "b": None, "c": 1.0}
