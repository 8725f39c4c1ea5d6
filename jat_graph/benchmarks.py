"""Every claim about speed and memory as a command that anyone can repeat."""

from jat_graph.lab.speed import BENCHMARKS
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.costs import refit_prices
from jat_graph.lab.speed.picture import draw_results
from jat_graph.lab.speed.results import Results, Row, read_results
from jat_graph.lab.speed.runner import run_benchmark
from jat_graph.lab.speed.series import Outcome
from jat_graph.lab.speed.spread import Spread
from jat_graph.lab.speed.tables import results_frame, results_markdown, results_table

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
    "results_frame",
    "results_markdown",
    "results_table",
    "run_benchmark",
]
