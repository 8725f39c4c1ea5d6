"""The paper's experiments; the code is in :mod:`jat_graph.lab.studies`."""

from jat_graph.lab.studies import (
    Cell as Cell,
)
from jat_graph.lab.studies import (
    CellsFailedError as CellsFailedError,
)
from jat_graph.lab.studies import (
    Estimate as Estimate,
)
from jat_graph.lab.studies import (
    Grid as Grid,
)
from jat_graph.lab.studies import (
    GridArm as GridArm,
)
from jat_graph.lab.studies import (
    Paper as Paper,
)
from jat_graph.lab.studies import (
    Plan as Plan,
)
from jat_graph.lab.studies import (
    Record as Record,
)
from jat_graph.lab.studies import (
    Results as Results,
)
from jat_graph.lab.studies import (
    Tuning as Tuning,
)
from jat_graph.lab.studies import (
    estimate_cells as estimate_cells,
)
from jat_graph.lab.studies import (
    grid_names as grid_names,
)
from jat_graph.lab.studies import (
    load_grid as load_grid,
)
from jat_graph.lab.studies import (
    read_results as read_results,
)
from jat_graph.lab.studies import (
    results_frame as results_frame,
)
from jat_graph.lab.studies import (
    run_experiment as run_experiment,
)
from jat_graph.lab.studies import (
    write_results as write_results,
)
