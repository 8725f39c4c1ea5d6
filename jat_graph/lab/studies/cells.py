"""The cells of a grid, and what each is run with."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from jat_graph.lab.studies.arms import build_heads, check_size, resolve_depth
from jat_graph.lab.studies.grid import Grid, folder_name
from jat_graph.lab.studies.small_models import HEADS, layers_of
from jat_graph.training.heads import Heads
from jat_graph.training.options import TrainingOptions
from jat_graph.training.pretrained import has_own_heads, load_config
from jat_graph.training.processes import Processes

RUNS_FOLDER = "runs"

# In place of a model, where cells make their own.
SCRATCH = "from scratch"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cell:
    """One run of a grid, which depends on no other.

    Args:
        task: Name of the task; of stepping stones that of an encoder, as ``"2 layers"``.
        arm: Name of the arm.
        seed: Of new weights, the data order and dropout.
    """

    task: str
    arm: str
    seed: int

    def __str__(self) -> str:
        """Say which it is."""
        return f"{self.task}, {self.arm}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """A grid on a model and its data.

    Args:
        grid: Which arms are trained on which tasks, and how often.
        model: Folder or Hub name of the model. (default: ``"from scratch"``, for grids whose cells
            make their own)
        data_dir: Folder with the tasks' files. (default: None, the tasks' own source)
        device: ``"auto"`` or ``"cpu"``. (default: "auto")
        processes: Those that train each cell together. (default: this one alone)
        keep_models: Keep the weights of each run. (default: False)
        given: Settings of heads by arm, which fit the model, in place of the grid's.
            (default: nothing)
    """

    grid: Grid
    model: str = SCRATCH
    data_dir: Path | None = None
    device: str = "auto"
    processes: Processes = field(default_factory=Processes)
    keep_models: bool = False
    given: Mapping[str, Heads | None] = field(default_factory=dict)

    @property
    def model_name(self) -> str:
        """The model without the way to it; of a folder ``model`` the one that holds it, too."""
        return _plain(self.model)

    @property
    def data_name(self) -> str | None:
        """The data's folder without the way to it; None without one."""
        return None if self.data_dir is None else _plain(self.data_dir)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Layers of the model, and heads of a layer.

        Raises:
            ValueError: If there is no such model, it has jump heads, or does not say its size.
        """
        if self.model == SCRATCH:
            raise ValueError(f"experiment {self.grid.name} needs a model, a folder or a Hub name")
        config = load_config(self.model)
        if has_own_heads(config):
            raise ValueError(f"model {self.model!r} must have no jump heads to be the base")
        layers = getattr(config, "num_hidden_layers", None)
        heads = getattr(config, "num_attention_heads", None)
        if not isinstance(layers, int) or not isinstance(heads, int):
            raise ValueError(f"model {self.model!r} must say how many layers and heads it has")
        return layers, heads

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells; those of a seed before the next, so that an early stop leaves whole pairs."""
        return tuple(
            Cell(task, arm.name, seed)
            for seed in self.grid.all_seeds
            for task in self.grid.tasks
            for arm in self.grid.arms
        )

    def choose(
        self, part: tuple[int, int] = (1, 1), tasks: Sequence[str] = (), arms: Sequence[str] = ()
    ) -> tuple[Cell, ...]:
        """Return some of the cells.

        Args:
            part: ``(i, n)``: part i of n equal ones, from 1. (default: (1, 1), all)
            tasks: Those of these tasks alone. (default: of all)
            arms: Those of these arms alone. (default: of all)

        Returns:
            The cells; none if there are more parts than cells.

        Raises:
            ValueError: If there is no such part, task or arm.
        """
        index, count = part
        if not 1 <= index <= count:
            raise ValueError(f"part must be I/N with I from 1 to N, got {index}/{count}")
        _check_known("task", tasks, self.grid.tasks)
        _check_known("arm", arms, [arm.name for arm in self.grid.arms])
        chosen = [
            cell
            for cell in self.cells
            if (not tasks or cell.task in tasks) and (not arms or cell.arm in arms)
        ]
        return tuple(chosen[index - 1 :: count])

    def options(self, cell: Cell, folder: Path, **changes: Any) -> TrainingOptions:
        """Return the options of a cell's run, which goes on where it was interrupted.

        Args:
            cell: One of this plan's.
            folder: Folder of the run.
            changes: Fields in place of the grid's.

        Returns:
            The options.

        Raises:
            ValueError: If one does not fit.
        """
        settings = self.grid.options(cell.task, self.grid.arm(cell.arm))
        if isinstance(settings.get("depth"), str):  # else a model need not say its size
            settings["depth"] = resolve_depth(settings["depth"], self._shape(cell)[0])
        run: dict[str, Any] = {
            "model": self.model,
            "task": cell.task,
            "output_dir": str(folder),
            "data_dir": None if self.data_dir is None else str(self.data_dir),
            "seed": cell.seed,
            "device": self.device,
            "resume": True,
        }
        return TrainingOptions(**(run | settings | changes))

    def heads(self, cell: Cell, threshold: float | None = None) -> Heads | None:
        """Return the settings of a cell's heads, before anything is measured.

        Args:
            cell: One of this plan's.
            threshold: ρ in place of the arm's own. (default: None, the arm's own)

        Returns:
            The settings; None for an arm without such heads.

        Raises:
            ValueError: If the model cannot have them.
        """
        if cell.arm in self.given:
            return self.given[cell.arm]
        arm, (own_layers, count) = self.grid.arm(cell.arm), self._shape(cell)
        depth = self.grid.options(cell.task, arm).get("depth")
        layers = resolve_depth(depth, own_layers) or own_layers
        heads = build_heads(arm, layers=layers, heads=count, threshold=threshold)
        check_size(heads, layers, count)
        return heads

    def check(self) -> None:
        """Refuse a model that some arm does not fit, before anything is run; name arms that agree.

        Raises:
            ValueError: If there is no such model, or an arm does not fit it.
        """
        self.shape  # noqa: B018  # reads the model's configuration
        for task in self.grid.tasks:
            seen: dict[str, str] = {}
            for arm in self.grid.arms:
                try:
                    twin = seen.setdefault(self._describe(Cell(task, arm.name, 0)), arm.name)
                except ValueError as error:
                    raise ValueError(f"{task}, arm {arm.name!r}: {error}") from None
                if twin != arm.name:
                    logger.warning("%s: arms %s and %s are one on this model", task, twin, arm.name)

    def check_no_model(self) -> None:
        """Refuse a model where cells make their own.

        Raises:
            ValueError: If one is named.
        """
        if self.model != SCRATCH:
            raise ValueError(
                f"experiment {self.grid.name} makes its own models, so that it takes no model, got "
                f"{self.model!r}"
            )

    def _shape(self, cell: Cell) -> tuple[int, int]:
        """Layers and heads of a cell's model, which may be an encoder from scratch."""
        layers = layers_of(cell.task)
        return self.shape if layers is None else (layers, HEADS)

    def _describe(self, cell: Cell) -> str:
        """Return a text that two arms share if they do the same, and by the same ρ."""
        tune = self.grid.arm(cell.arm).tune
        chooser = replace(cell, arm=tune) if isinstance(tune, str) else cell
        return repr((self._run(cell), self._run(chooser) if tune else None))

    def _run(self, cell: Cell) -> tuple[TrainingOptions, Heads | None, float | None]:
        density = self.grid.arm(cell.arm).density
        return self.options(cell, Path("output")), self.heads(cell), density


def cell_folder(output: Path, cell: Cell) -> Path:
    """Return where a cell is run."""
    task, arm = folder_name(cell.task), folder_name(cell.arm)
    return output / RUNS_FOLDER / task / arm / f"seed-{cell.seed}"


def output_of(folder: Path) -> Path:
    """Return the folder of the experiment that a cell's folder belongs to."""
    return folder.parents[3]


def _check_known(what: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    """Refuse names that a grid lacks; they are quoted, as they may hold commas."""
    for name in wanted:
        if name not in known:
            raise ValueError(f"{what} must be one of {', '.join(map(repr, known))}, got {name!r}")


def _plain(path: str | Path) -> str:
    """Return the last part of a folder's path; a Hub name as it is."""
    if isinstance(path, str) and not Path(path).is_dir():
        return path
    parts = PurePath(Path(path).expanduser().resolve()).parts
    return "/".join(parts[-2:] if parts[-1] == "model" else parts[-1:])
