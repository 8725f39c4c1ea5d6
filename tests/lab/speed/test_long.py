"""Rows of long encoders: time and memory of both sides, and a BigBird that must stay sparse."""

import re

import pytest
import torch.nn.functional as F

from jat_graph.lab.speed import long, probe
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.long import (
    LONG,
    NO_ROOM,
    NOT_SPARSE,
    attention_against_all_pairs,
    memory_facts,
    peak,
    run_side,
)
from jat_graph.lab.speed.long_models import ALONE, BIGBIRD, JUMPS, LONGFORMER, STOCK
from jat_graph.lab.speed.results import Row
from jat_graph.lab.speed.series import Series, Settings
from jat_graph.lab.speed.tables import find_bars, results_markdown, slope_lines
from jat_graph.training import memory as own_memory
from tests.lab.speed.support import outcome, results
from tests.lab.speed.test_probe import needs_peaks

SERIES = {
    series.against: series for series in LONG.series(Settings("cpu", 1)) if series.what == JUMPS
}


def measured(series: Series, length: int, ours: float, theirs: float, **facts: float) -> Row:
    return Row(series.what, series.against, length, outcome(ours, theirs, **facts), 1.0)


@pytest.mark.usefixtures("quick")
def test_a_row_has_time_and_memory_of_both_sides(
    settings: Settings, said: pytest.LogCaptureFixture
) -> None:
    found = SERIES[ALONE].measure(48, settings)
    assert found.ratio is not None
    assert found.facts["our_bytes"] == 48 * len(JUMPS)
    assert found.facts["memory_ratio"] == len(JUMPS) / len(ALONE)
    assert f"{JUMPS} against {ALONE}, L=48: results agree; " in said.text


@pytest.mark.usefixtures("quick")
def test_a_bigbird_that_is_not_sparse_is_refused(settings: Settings) -> None:
    found = SERIES[BIGBIRD].measure(48, settings)
    assert (found.ratio, found.facts, found.note) == (None, {}, NOT_SPARSE)


@pytest.mark.usefixtures("quick")
def test_a_system_without_peaks_is_said(settings: Settings, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(own_memory, "PEAK_RESET", tmp_path / "missing")
    found = SERIES[STOCK].measure(48, settings)
    assert found.ratio is not None
    assert found.note.startswith("memory not measured: only Linux")
    assert "our_bytes" not in found.facts


def test_the_memory_of_a_side_is_measured_once(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(long, "probe", lambda *arguments: asked.append(arguments) or 8)
    for side in (JUMPS, STOCK, JUMPS):
        assert peak(side, 32, "cpu") == 8
    assert asked == [("jat_graph.lab.speed.long", side, 32, "cpu") for side in (JUMPS, STOCK)]
    peak.cache_clear()


def test_a_side_that_does_not_fit_is_a_note_and_no_end(settings: Settings) -> None:
    """Tokens by the petabyte: their process fails for want of memory, and nothing is timed."""
    found = SERIES[STOCK].measure(2**48, settings)
    assert (found.ratio, found.facts, found.note) == (None, {}, NO_ROOM)


def test_lengths_are_those_of_the_claims() -> None:
    assert SERIES[STOCK].lengths == (512, 1024, 2048, 4096, 8192, 16384)
    assert {series.largest for series in SERIES.values()} == {65536}


@pytest.mark.parametrize(("length", "numbers"), [(1024, []), (2048, ["ratio", "memory_ratio"])])
def test_faster_and_smaller_than_the_others_from_2048_on(length: int, numbers: list[str]) -> None:
    row = measured(SERIES[LONGFORMER], length, 1.0, 2.0, **memory_facts(2**20, 2**22))
    found = results("long", row)
    assert [bar.number for bar in find_bars(found, row)] == numbers
    text = re.sub(" +", " ", results_markdown(found))
    assert ("| ≤ 1 |" in text) == bool(numbers)
    assert "peak memory 1 MiB; of the other 4 MiB; memory ratio 0.25" in text
    assert ("memory ratio 0.25 (bar: at most 1)" in text) == bool(numbers)


def test_slopes_are_from_2048_on_and_said_once_a_side() -> None:
    rows = [
        measured(SERIES[other], n, max(n, 2048.0), n**2.0)
        for other in (ALONE, STOCK)
        for n in SERIES[other].lengths
    ]
    first, *others = slope_lines(results("long", *rows))
    assert first == f"Log–log slope from 2048 on, {JUMPS}: 1.00 (bar: at most 1.15)."
    assert [line[-5:] for line in others] == ["2.00."] * 2


@needs_peaks
@pytest.mark.usefixtures("quick")
def test_main_prints_the_bytes(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["probe", "jat_graph.lab.speed.long", STOCK, "64", "cpu"])
    probe.main()
    assert int(capsys.readouterr().out) >= 0


@pytest.mark.usefixtures("quick")
def test_weights_gradients_and_optimizer_are_there_before(settings: Settings, monkeypatch) -> None:
    there = []

    def look(step, device) -> int:
        optimizer = step.__self__.optimizer
        weights = list(step.__self__.model.parameters())
        used = [weight for weight in weights if weight.grad is not None]
        there.append(used and all("exp_avg" in optimizer.state[weight] for weight in used))
        return 7

    monkeypatch.setattr(long, "peak_of", look)
    assert run_side(STOCK, 64, settings) == 7
    assert there == [True]


@pytest.mark.usefixtures("quick")
def test_attention_alone_is_checked_and_timed(settings: Settings) -> None:
    outcome = attention_against_all_pairs(700, settings)
    assert outcome.ratio is not None and outcome.ratio.median > 0


@pytest.mark.usefixtures("quick")
def test_attention_to_all_pairs_is_refused(settings: Settings, monkeypatch) -> None:
    def all_pairs(query, key, value, *, pattern):
        return F.scaled_dot_product_attention(query, key, value)

    monkeypatch.setattr(long, "pattern_attention", all_pairs)
    with pytest.raises(CheckError, match=r"^attention alone, window, L=700: the result check"):
        attention_against_all_pairs(700, settings)
