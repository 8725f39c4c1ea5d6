"""All benchmarks by name."""

import pytest

from jat_graph.lab.speed import BENCHMARKS, LONGEST, find_benchmark
from jat_graph.lab.speed.series import Settings


def test_each_has_its_name_and_series_told_apart() -> None:
    assert {"kernels", "heads", "model", "memory", "graphs", "growth"} <= set(BENCHMARKS)
    for name, benchmark in BENCHMARKS.items():
        assert benchmark.name == name
        series = benchmark.series(Settings("cpu", 1))
        assert len({(one.what, one.against) for one in series}) == len(series) > 0
        assert LONGEST[name] == max(one.largest for one in series)
        for one in series:
            assert 16 <= min(one.lengths) <= max(one.lengths) <= one.largest


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"benchmark must be one of kernels, .*, got 'speed'"):
        find_benchmark("speed")
