"""Results as tables."""

import io
import re

import pytest
from rich.console import Console

from jat_graph.lab.speed import BENCHMARKS, memory
from jat_graph.lab.speed.results import Results, Row
from jat_graph.lab.speed.series import Outcome, Settings
from jat_graph.lab.speed.tables import (
    find_bars,
    machine_line,
    ordered_rows,
    results_frame,
    results_markdown,
    results_table,
    slope_lines,
)
from tests.lab.speed.support import outcome, results


def shown(found: Results) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(results_table(found))
    return console.file.getvalue()


def row(what: str, against: str, length: int, found: Outcome) -> Row:
    return Row(what, against, length, found, 1.0)


KERNELS = results(
    "kernels",
    row("threshold product", "SDPA of the same heads", 8192, outcome(0.00213, 0.0133)),
    row("threshold product", "SDPA of the same heads", 2048,
        outcome(0.5, 2.0, rank_seconds=0.0125, product_seconds=1.25, edges=1234567)),
    row("threshold product", "torch_sparse", 2048, Outcome(note="not measured: it is missing")),
)  # fmt: skip


def test_a_terminal_shows_ratio_bar_and_both_figures_in_80_columns() -> None:
    text = shown(KERNELS)
    assert max(map(len, text.splitlines())) <= 80
    line = next(line for line in text.splitlines() if line.strip().startswith("2048"))
    assert line.split() == [
        "2048", "500", "ms", "2", "s", "0.25", "(0.225", "to", "0.275)", "≤", "0.4", "66%", "56%",
    ]  # fmt: skip
    assert "L=2048: ranking 12.5 ms; product 1.25 s; edges 1,234,567" in text
    assert "L=2048: not measured: it is missing" in text
    assert "…" not in text


def single_spaced(found: Results) -> str:
    return re.sub(" +", " ", results_markdown(found))


def test_a_frame_has_the_numbers_of_every_point() -> None:
    frame = results_frame(KERNELS).set_index(["against", "length"])
    assert len(frame) == len(KERNELS.rows)
    point = frame.loc["SDPA of the same heads", 2048]
    assert (point["ours_median"], point["theirs_high"], point["ratio_samples"]) == (0.5, 2.2, 9)
    assert (point["what"], point["edges"], point["joined"]) == ("threshold product", 1234567, 0.66)
    assert point["seconds"] == 1.0
    missing = frame.loc["torch_sparse", 2048]
    assert missing[["ours_median", "ratio_low", "edges"]].isna().all()
    assert missing["note"] == "not measured: it is missing"
    assert results_frame(results("kernels")).empty


def test_results_without_a_point_are_an_empty_table() -> None:
    nothing = results("kernels")
    assert "| our side " in results_markdown(nothing)
    assert "Measured in float32" in shown(nothing)


def test_markdown_has_a_row_for_every_point() -> None:
    text = single_spaced(KERNELS)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(KERNELS.rows)
    assert len({line.count("|") for line in table}) == 1
    assert "| 2.13 ms (1.92 to 2.34) | 13.3 ms (12 to 14.6) | 0.16 (0.144 to 0.176) |" in text
    assert "| - | - | - | - | - | - | not measured: it is missing |" in text


def test_rows_stand_by_comparison_and_length() -> None:
    assert [(row.against[:4], row.length) for row in ordered_rows(KERNELS)] == [
        ("SDPA", 2048), ("SDPA", 8192), ("torc", 2048),
    ]  # fmt: skip


def test_slopes_are_said_with_their_bar() -> None:
    found = results(
        "growth", *(row("product", "fixed", n, outcome(n**1.1, n)) for n in (4096, 8192, 65536))
    )
    first, second = slope_lines(found)
    assert first.endswith("product: 1.10 (bar: at most 1.15).")
    assert second.endswith("fixed: 1.00.")
    assert slope_lines(KERNELS) == []


@pytest.mark.parametrize(
    ("size", "text"),
    [(2.0**20 * 1.5, "1.5 MiB"), (2.0**30 * 12, "12 GiB"), (4096.0, "0.00391 MiB")],
)
def test_bytes_are_shown_in_one_unit(size: float, text: str) -> None:
    found = results(
        "memory", row(memory.WHAT, memory.AGAINST, 1024, outcome(size, size, multiple=2.345))
    )
    assert f"| {text} (" in single_spaced(found)
    assert "times Q, K and key scores 2.35" in results_markdown(found)
    assert "≤ 3 times" in results_markdown(found)


def test_the_machine_is_said() -> None:
    line = machine_line(KERNELS)
    assert line == (
        "Measured in float32 on A Processor, 2 cores, 2 threads, Linux x86_64; "
        "python 3.11.7, torch 2.13.0, jat_graph 0.1.0."
    )
    machine = {**KERNELS.machine, "gpu": "H200", "cuda": "13.0"}
    gpu = Results("kernels", KERNELS.settings, machine, "", ())
    assert "on H200 with CUDA 13.0, A Processor" in machine_line(gpu)


def every_row(device: str):
    """Yield every row that a device would measure, and the results it stands in."""
    for name, benchmark in BENCHMARKS.items():
        for series in benchmark.series(Settings(device, 1)):
            for length in series.lengths:
                row = Row(series.what, series.against, length, outcome(), 1.0)
                yield results(name, row, device=device), row


def test_every_bar_is_that_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    met = {
        bar
        for device in ("cpu", "cuda")
        for entry in every_row(device)
        for bar in find_bars(*entry)
    }
    assert met == {bar for benchmark in BENCHMARKS.values() for bar in benchmark.bars}


def test_bars_of_one_device_do_not_hold_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for device in ("cpu", "cuda"):
        found = [find_bars(*entry) for entry in every_row(device)]
        assert {bar.device for bars in found for bar in bars} == {device}
        assert () in found


def test_slope_bars_are_of_numbers_that_grow() -> None:
    barred = [entry for entry in BENCHMARKS.values() if entry.slope_bar is not None]
    assert barred and all("ours" in entry.growing for entry in barred)
