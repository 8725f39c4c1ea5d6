"""What happens beside the steps of a training: logs before checkpoints, a clock, TensorBoard."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from jat_graph.training.storage import LOG_FOLDER


class LogBeforeSave(TrainerCallback):
    """Log the loss before each checkpoint, so that no part of a mean is lost with a resume."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Log if a checkpoint follows."""
        control.should_log = control.should_log or control.should_save

    on_epoch_end = on_step_end


class TrainingTime(TrainerCallback, ExportableState):
    """Wall-clock time of a training; each checkpoint keeps it, so that a resumed run adds to it."""

    def __init__(self) -> None:
        self._earlier = 0.0
        self._began: float | None = None

    @property
    def seconds(self) -> float:
        """The time until now, evaluations included; a resumed run begins with its checkpoint's."""
        return self._earlier + (0 if self._began is None else time.perf_counter() - self._began)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"args": {}, "attributes": {"seconds": self.seconds}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin with the time that the checkpoint has, if there is one."""
        kept: Any = state.stateful_callbacks
        # A checkpoint from before times were kept has none; the Trainer saves to what is there.
        own = kept.setdefault(type(self).__name__, self.state())
        self._earlier = own["attributes"]["seconds"]
        self._began = time.perf_counter()


def tensorboard(folder: Path | None) -> list[TrainerCallback]:
    """Return what writes logs for TensorBoard, if it is installed."""
    if folder is None or find_spec("tensorboard") is None:
        return []
    from transformers.integrations.integration_utils import TensorBoardCallback

    callback = TensorBoardCallback()  # type: ignore[no-untyped-call]
    callback.logging_dir = str(folder / LOG_FOLDER)
    return [callback]
