"""Tables of texts."""

import io
from pathlib import Path

import pytest
from pandas import DataFrame
from rich.console import Console

from jat_graph.lab.speed.results import read_results
from jat_graph.lab.speed.tables import results_table
from jat_graph.lab.tables import markdown, terminal_table

DOCS = Path(__file__).resolve().parents[2] / "docs"

FRAME = DataFrame({"arm": ["base", "JAT"], "score": ["60.0", "**1.50**"]})


def test_markdown_keeps_texts_as_they_are() -> None:
    assert markdown(FRAME, left=["arm"]).splitlines() == [
        "| arm   |    score |",
        "|:------|---------:|",
        "| base  |     60.0 |",
        "| JAT   | **1.50** |",
    ]


def test_a_table_of_the_terminal_breaks_no_number() -> None:
    out = io.StringIO()
    Console(file=out, width=20).print(terminal_table(FRAME, left=["arm"], title="Two arms"))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert lines[0] == "Two arms"
    assert {"arm score", "base 60.0", "JAT 1.50"} <= set(lines)


def shown(table: object) -> str:
    out = io.StringIO()
    Console(file=out, width=80).print(table)
    assert max(map(len, out.getvalue().splitlines())) <= 80
    return out.getvalue()


@pytest.mark.parametrize("path", sorted(DOCS.glob("benchmarks/*.json")), ids=lambda p: p.stem)
def test_times_of_benchmarks_are_whole_at_80_columns(path: Path) -> None:
    results = read_results(path)
    text = shown(results_table(results))
    assert "…" not in text
    for row in results.rows:
        ratio = row.outcome.ratio
        if ratio is not None:
            numbers = [f"{n:.3g}" if n < 100 else f"{n:.0f}" for n in (ratio.median, ratio.low)]
            assert f"{numbers[0]} ({numbers[1]} to " in text
