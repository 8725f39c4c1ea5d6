"""Tables of comparisons."""

import io

from rich.console import Console

from jat_graph.training import comparison_markdown, comparison_table
from tests.lab.studies.support import narrow
from tests.training.support import made_up


def test_markdown() -> None:
    text = comparison_markdown(made_up(base=[0.5, 0.6], jump=[0.6, 0.9]))
    lines = narrow(text).splitlines()
    assert lines[0] == "| measure | arm | score | change | 95 % interval |"
    assert lines[2] == "| mrpc, accuracy | base | 55.0 ± 7.1 | - | - |"
    assert lines[3] == "| mrpc, accuracy | jump | 75.0 ± 21.2 | +20.0 | -107.1 to +147.1 |"
    assert lines[-1].startswith("- No difference shown between jump and base: +20.0")


def test_table() -> None:
    comparison = made_up(base=[0.5, 0.6], calibrated=[0.6, 0.9], other=[None, 0.5])
    out = io.StringIO()
    Console(file=out, width=80).print(comparison_table(comparison))
    text = " ".join(out.getvalue().split())
    assert "mrpc, 2 seeds" in text
    assert "undefined" in text
    assert "…" not in text
    for sentence in comparison.verdicts:
        assert sentence in text
