"""Tables of comparisons."""

import io

from rich.console import Console

from jat_graph.training import comparison_markdown, comparison_table
from tests.training.support import made_up


def test_markdown() -> None:
    lines = comparison_markdown(made_up(base=[0.5, 0.6], jump=[0.6, 0.9])).splitlines()
    assert lines[0] == "| score | arm | mean ± std | change | 95 % interval | p |"
    assert lines[2] == "| dev accuracy | base | 0.5500 ± 0.0707 | - | - | - |"
    assert lines[3].startswith("| dev accuracy | jump | 0.7500 ± 0.2121 | +0.2000 | -1.0706 to")
    assert lines[-1].startswith("- No difference shown between jump and base: +0.2000")


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
