"""What a comparison takes at lengths that were not measured."""

import pytest

from jat_graph.lab.speed.scaling import Growth, Known


def known(length: int, **fields: float | None) -> Known:
    usual = {"once": 1.0, "ours": 1.0, "theirs": 1.0, "most": None, "memory": None}
    return Known("ours", "theirs", length, **usual | fields)


def test_numbers_lie_on_lines_through_logarithms() -> None:
    growth = Growth([known(64, ours=1.0, once=4.0), known(256, ours=16.0, once=4.0)])
    assert growth.expect(128, 1).seconds == pytest.approx(4.0 + 4.0 + 1.0)
    assert growth.expect(512, 2).seconds == pytest.approx(4.0 + 2 * (64.0 + 1.0))
    assert growth.expect(32, 1).seconds == pytest.approx(4.0 + 0.25 + 1.0)
    assert Growth([known(64)]).expect(128, 1).seconds == pytest.approx(4.0 + 2 * 4.0)


def test_growth_is_bounded_beyond_what_was_measured() -> None:
    falling = Growth([known(64, ours=2.0, theirs=2.0), known(128, ours=1.0, theirs=1.0)])
    assert falling.expect(1024, 1).step == pytest.approx(2.0)
    steep = Growth([known(64, ours=0.1, theirs=0.0), known(128, ours=10.0, theirs=0.0)])
    assert steep.expect(256, 1).step == pytest.approx(80.0, rel=1e-4)


def test_few_repeats_and_long_samples_count() -> None:
    growth = Growth([known(64, ours=0.01, theirs=0.1, once=0.0)])
    assert growth.expect(64, 9).seconds == pytest.approx(9 * (0.05 + 0.01 + 0.1))
    assert Growth([known(64, most=2)]).expect(64, 9).seconds == pytest.approx(1.0 + 2 * 2.0)
    assert Growth([known(64, ours=200.0)]).expect(64, 9).seconds == pytest.approx(1.0 + 3 * 201.0)


def test_memory_grows_with_two_lengths_and_is_never_less() -> None:
    growth = Growth([known(64, memory=100), known(128, memory=200), known(256)])
    assert growth.expect(256, 1).memory == pytest.approx(400)
    assert growth.expect(16, 1).memory == pytest.approx(100)
    assert Growth([known(64, memory=100)]).expect(512, 1).memory == 100
    assert Growth([known(64)]).expect(64, 1).memory is None
