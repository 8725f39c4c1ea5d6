"""Every claim about speed and memory as a command that anyone can repeat."""

from jat_graph.benchmarks.checks import CheckError
from jat_graph.benchmarks.costs import refit_prices
from jat_graph.benchmarks.picture import draw_results
from jat_graph.benchmarks.registry import BENCHMARKS
from jat_graph.benchmarks.results import Results, Row, read_results
from jat_graph.benchmarks.runner import run_benchmark
from jat_graph.benchmarks.series import Outcome
from jat_graph.benchmarks.spread import Spread
from jat_graph.benchmarks.tables import results_markdown, results_table

__all__ = [
    "BENCHMARKS",
    "CheckError",
    "Outcome",
    "Results",
    "Row",
    "Spread",
    "draw_results",
    "read_results",
    "refit_prices",
    "results_markdown",
    "results_table",
    "run_benchmark",
]
