"""Results that were never measured, and a benchmark that takes no time."""

from jat_graph.lab.speed.results import Results, Row
from jat_graph.lab.speed.series import Benchmark, Outcome, Series, Settings
from jat_graph.lab.speed.spread import Spread

MACHINE = {
    "processor": "A Processor",
    "cores": 2,
    "threads": 2,
    "system": "Linux x86_64",
    "python": "3.11.7",
    "torch": "2.13.0",
    "jat_graph": "0.1.0",
}


def outcome(ours: float = 1.0, theirs: float = 2.0, **facts: float | int | str) -> Outcome:
    """Return an outcome whose quartiles lie a tenth around the median."""
    spreads = (Spread(n, 0.9 * n, 1.1 * n, 9) for n in (ours, theirs, ours / theirs))
    return Outcome(*spreads, {"joined": 0.66, "taking_part": 0.56} | facts)


def results(benchmark: str, *rows: Row, device: str = "cpu") -> Results:
    """Return results of a benchmark."""
    settings = {"device": device, "repeats": 9, "dtype": "float32"}
    return Results(benchmark, settings, MACHINE, "0123456789ab", rows)


class Counting:
    """A benchmark of two series that counts what is measured."""

    def __init__(self, **fields) -> None:
        self.measured: list[tuple[str, int]] = []
        series = (self._series("short", 64), self._series("long", 4096))
        self.benchmark = Benchmark("growth", "A claim.", lambda settings: series, **fields)

    def _series(self, name: str, largest: int) -> Series:
        def measure(length: int, settings: Settings) -> Outcome:
            self.measured.append((name, length))
            return outcome(ours=float(length), theirs=1.0)

        return Series(name, "nothing", (32, 64), largest, measure)
