"""The counting rows: right results are timed, wrong ones are refused before."""

import pytest
import torch

from jat_graph.kernels import count_votes
from jat_graph.lab.speed import counting
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.counting import (
    ADJACENCY,
    COUNT,
    FASTEST,
    count_by_definition,
    counting_series,
)
from jat_graph.lab.speed.formulas import FORMULATIONS
from jat_graph.lab.speed.series import Series, Settings
from jat_graph.voting.rule import VoteRule

SERIES = counting_series()
LENGTH = 40


def _name(series: Series) -> str:
    return f"{series.what} against {series.against}"


def one_too_many(rule, scores, norms):
    """Count, and count one pair once too often."""
    counts = count_votes(*rule.settle(scores, norms))
    counts[0, -1, 1, 0] += 1
    return counts


def test_the_definition_is_that_of_the_kernel() -> None:
    scores = torch.randn(2, 3, 30, 7, generator=torch.Generator().manual_seed(0))
    for inclusive in (False, True):
        rule = VoteRule(torch.full((1, 1), 0.5), inclusive=inclusive)
        assert torch.equal(count_by_definition(rule, scores), count_votes(*rule.settle(scores)))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("series", SERIES, ids=_name)
def test_a_row_is_measured_after_its_figures_are_printed(
    series: Series, settings: Settings, said: pytest.LogCaptureFixture
) -> None:
    outcome = series.measure(LENGTH, settings)
    assert outcome.ratio is not None
    assert outcome.ratio.median > 0
    assert outcome.facts["joined"] >= 0.6
    assert outcome.facts["taking_part"] >= 0.5
    assert f"{series.what}, L={LENGTH}: results agree; " in said.text
    assert f"{100 * outcome.facts['joined']:.1f} % of the pairs are joined" in said.text
    if series.against == FASTEST:
        assert outcome.facts["formulation"] in FORMULATIONS
    assert ("count_seconds" in outcome.facts) == (series.what == ADJACENCY)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("series", SERIES, ids=_name)
def test_a_wrong_count_is_refused_and_nothing_is_timed(
    series: Series, settings: Settings, said: pytest.LogCaptureFixture, monkeypatch
) -> None:
    monkeypatch.setattr(counting, "count_votes", one_too_many)
    with pytest.raises(CheckError, match=rf"^{series.what}, L={LENGTH}.*1 of \d+ numbers differ"):
        series.measure(LENGTH, settings)
    assert not said.messages


@pytest.mark.usefixtures("quick")
def test_heads_that_join_too_little_are_refused(
    settings: Settings, said: pytest.LogCaptureFixture, monkeypatch
) -> None:
    from jat_graph.lab.speed import case

    monkeypatch.setattr(case, "THRESHOLD", 30.0)
    with pytest.raises(CheckError, match=f"^{COUNT}, L={LENGTH}: the inputs must join 60%"):
        SERIES[0].measure(LENGTH, settings)
    assert not said.messages


def test_without_a_compiler_the_row_says_so(settings: Settings, monkeypatch) -> None:
    monkeypatch.setattr(counting, "missing_compiler", lambda device: "no compiler")
    outcome = SERIES[1].measure(LENGTH, settings)
    assert outcome.ratio is None
    assert outcome.note == "not measured: no compiler"
