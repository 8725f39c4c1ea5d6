"""How long a probe will take."""

import pytest

from jat_graph.probes import estimate
from jat_graph.probes.estimate import foresee


def test_a_straight_line_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    sizes = []

    def probe(sentences: int) -> None:
        sizes.append(sentences)
        now[0] += 3.0 + 0.5 * sentences + 100.0 * (len(sizes) == 1)  # the first reads and compiles

    monkeypatch.setattr(estimate.time, "perf_counter", lambda: now[0])
    assert foresee(probe, 1000) == pytest.approx(503.0)
    assert sizes == [16, 16, 64]


@pytest.mark.parametrize(("whole", "sizes"), [(10, [10, 10]), (40, [16, 16, 40])])
def test_little_is_tried_whole(
    whole: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, tried = [0.0], []

    def probe(sentences: int) -> None:
        tried.append(sentences)
        now[0] += sentences

    monkeypatch.setattr(estimate.time, "perf_counter", lambda: now[0])
    assert foresee(probe, whole) == whole
    assert tried == sizes
