"""Run a benchmark point by point, and go on where it stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from jat_graph.lab.machine import describe_machine, source_digest
from jat_graph.lab.speed import check_lengths, find_benchmark
from jat_graph.lab.speed.foresight import say_cost
from jat_graph.lab.speed.results import Results, Row, read_results
from jat_graph.lab.speed.series import Benchmark, Series, Settings
from jat_graph.lab.store import check_same
from jat_graph.training.memory import missing_peaks, peak_bytes, reset_peak

logger = logging.getLogger(__name__)


def run_benchmark(
    name: str,
    *,
    path: str | Path,
    device: str = "cpu",
    lengths: Sequence[int] | None = None,
    repeats: int = 9,
    progress: bool = False,
) -> Results:
    """Measure what a file does not hold yet.

    Every point checks its results first; if that fails, nothing of it is timed.

    Args:
        name: One of :data:`jat_graph.benchmarks.BENCHMARKS`.
        path: File for the results, written after each point. If it exists, its points are kept.
        device: ``"cpu"`` or ``"cuda"``. (default: "cpu")
        lengths: Tokens L to measure, wherever they fit. (default: None, those of the claim)
        repeats: How often each point is measured. (default: 9)
        progress: Show a bar. (default: False)

    Returns:
        All results of the file.

    Raises:
        CheckError: If a result check fails.
        ValueError: If an argument does not fit, or the file holds other results.
        OSError: If the file cannot be read or written.
    """
    benchmark = find_benchmark(name)
    settings = Settings(device, repeats)
    points = _points(benchmark, settings, lengths)
    results = _open_results(benchmark, settings, Path(path))
    left = [(s, n) for s, n in points if results.row(s.what, s.against, n) is None]
    if left:
        say_cost(benchmark, left, settings, patient=lengths is not None)
    with _bar(progress, len(points)) as bar:
        for series, length in points:
            done = results.row(series.what, series.against, length) is not None
            if not done and not _is_left_out(benchmark, results, series, length, lengths):
                bar.update(bar.task_ids[0], description=f"{series.what}, L={length}")
                row = _measure(series, length, settings)
                results = replace(results, rows=(*results.rows, row))
                results.save(path)
            bar.advance(bar.task_ids[0])
    return results


def _points(
    benchmark: Benchmark, settings: Settings, lengths: Sequence[int] | None
) -> list[tuple[Series, int]]:
    """The series and lengths to measure."""
    found = benchmark.series(settings)
    if lengths is None:
        return [(series, length) for series in found for length in series.lengths]
    check_lengths(benchmark.name, lengths, max(series.largest for series in found))
    return [
        (series, length)
        for series in found
        for length in sorted(set(lengths))
        if length <= series.largest
    ]


def _open_results(benchmark: Benchmark, settings: Settings, path: Path) -> Results:
    """What the file holds, which must be of this benchmark here; a new one holds no point."""
    machine = describe_machine(settings.torch_device)
    wanted = Results(benchmark.name, settings.to_dict(), machine, source_digest())
    if not path.exists():
        wanted.save(path)  # a folder that cannot be written to shows before the work
        return wanted
    found = read_results(path)
    old, new = (vars(replace(results, rows=())) for results in (found, wanted))
    check_same(old, new, str(path), "name another file, or remove it")
    return found


def _is_left_out(
    benchmark: Benchmark,
    results: Results,
    series: Series,
    length: int,
    lengths: Sequence[int] | None,
) -> bool:
    """Tell whether a point nobody asked for by its length would take too long."""
    if benchmark.patience is None or lengths is not None:
        return False
    before = [
        row
        for row in results.rows
        if row.key[:2] == (series.what, series.against) and row.length < length
    ]
    if not before:
        return False
    last = max(before, key=lambda row: row.length)
    expected = last.seconds * (length / last.length) ** 2
    if expected <= benchmark.patience:
        return False
    logger.info(
        "%s, L=%d is left out: it would take about %.0f s; --lengths %d asks for it.",
        series.what, length, expected, length,
    )  # fmt: skip
    return True


def _measure(series: Series, length: int, settings: Settings) -> Row:
    known, device = not missing_peaks(settings.device), settings.torch_device
    before, start = reset_peak(device) if known else 0, time.perf_counter()
    outcome = series.measure(length, settings)
    seconds = round(time.perf_counter() - start, 3)
    memory = peak_bytes(device) - before if known else None
    return Row(series.what, series.against, length, outcome, seconds, memory)


@contextmanager
def _bar(shown: bool, points: int) -> Iterator[Progress]:
    """Give a bar on standard error, or one that nobody sees."""
    from rich.console import Console

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not shown) as bar:
        bar.add_task("", total=points)
        yield bar
