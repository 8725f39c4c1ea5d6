"""The paper's experiments, as commands: grids of runs, their results, tables and pictures."""

from jat_graph.lab.grids import grid_names

# The modules of the kinds are imported so that grids may be of them.
from jat_graph.lab.studies import (  # noqa: F401
    connections,
    fine_tuning,
    recall,
    scratch,
    stepping_stones,
)
from jat_graph.lab.studies.arms import GridArm
from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.estimate import Estimate, estimate_cells
from jat_graph.lab.studies.grid import Grid, Paper, Tuning, load_grid
from jat_graph.lab.studies.results import Record, Results, read_results, write_results
from jat_graph.lab.studies.running import CellsFailedError, run_experiment
from jat_graph.lab.studies.small_reader import ReaderTraining, learning_curve
from jat_graph.lab.studies.tables import results_frame

__all__ = [
    "Cell",
    "CellsFailedError",
    "Estimate",
    "Grid",
    "GridArm",
    "Paper",
    "Plan",
    "ReaderTraining",
    "Record",
    "Results",
    "Tuning",
    "estimate_cells",
    "grid_names",
    "learning_curve",
    "load_grid",
    "read_results",
    "results_frame",
    "run_experiment",
    "write_results",
]
