"""The benchmarks; the code is in :mod:`jat_graph.lab.speed`."""

from jat_graph.lab.speed import (
    BENCHMARKS as BENCHMARKS,
)
from jat_graph.lab.speed import (
    CheckError as CheckError,
)
from jat_graph.lab.speed import (
    Outcome as Outcome,
)
from jat_graph.lab.speed import (
    Results as Results,
)
from jat_graph.lab.speed import (
    Row as Row,
)
from jat_graph.lab.speed import (
    Spread as Spread,
)
from jat_graph.lab.speed import (
    draw_results as draw_results,
)
from jat_graph.lab.speed import (
    read_results as read_results,
)
from jat_graph.lab.speed import (
    refit_prices as refit_prices,
)
from jat_graph.lab.speed import (
    results_markdown as results_markdown,
)
from jat_graph.lab.speed import (
    results_table as results_table,
)
from jat_graph.lab.speed import (
    run_benchmark as run_benchmark,
)
