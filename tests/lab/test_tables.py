"""Tables of texts."""

import io

from pandas import DataFrame
from rich.console import Console

from jat_graph.lab.tables import markdown, terminal_table

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
