"""Tables of texts."""

import io
from pathlib import Path

import pytest
from pandas import DataFrame
from rich.console import Console

from jat_graph.lab import studies
from jat_graph.lab.studies.rows import experiment_rows
from jat_graph.lab.studies.tables import WORDS, text_frame
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


@pytest.mark.parametrize("path", sorted(DOCS.glob("experiments/*.jsonl")), ids=lambda p: p.stem)
def test_scores_of_experiments_are_whole_at_80_columns(path: Path) -> None:
    results = studies.read_results(path)
    frame = text_frame(results, experiment_rows(results))
    text = shown(terminal_table(frame, WORDS))
    assert "…" not in text
    words = set(text.split())
    for column in frame.columns:
        for cell in frame[column]:
            plain = cell.strip("*")
            assert set(plain.split()) <= words
            assert column in WORDS or plain in text  # numbers with their spread in one piece
