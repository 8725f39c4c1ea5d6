"""The paper's experiments, as commands: grids of runs, their results, tables and pictures."""

from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.estimate import Estimate, estimate_cells
from jat_graph.lab.studies.grid import Grid, grid_names, load_grid
from jat_graph.lab.studies.grid_parts import GridArm, Paper, Tuning
from jat_graph.lab.studies.results import Record, Results, read_results, write_results
from jat_graph.lab.studies.running import CellsFailedError, run_experiment

__all__ = [
    "Cell",
    "CellsFailedError",
    "Estimate",
    "Grid",
    "GridArm",
    "Paper",
    "Plan",
    "Record",
    "Results",
    "Tuning",
    "estimate_cells",
    "grid_names",
    "load_grid",
    "read_results",
    "run_experiment",
    "write_results",
]
