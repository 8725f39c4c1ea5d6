"""What a finished run says about itself."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Any

Metrics = dict[str, dict[str, float | None]]

_PACKAGES = ("torch", "torch-geometric", "transformers")
RESULT_VERSION = 1


@dataclass(frozen=True)
class RunResult:
    """One finished run.

    Args:
        task: Name of the task.
        primary_metric: The task's own measure.
        metrics: Scores of the saved model: ``metrics[dev set][metric]``; None where undefined.
        history: What was logged during training, by ``step`` and ``epoch``: ``loss``, the mean
            training loss since the entry before, and at each save, where weights are selected,
            ``<dev set>_loss`` and ``<dev set>_<metric>`` of the first dev set.
        steps: Optimizer steps of the whole training.
        best_step: Step whose weights were kept; None if the last were.
        seconds: Wall-clock time of training, evaluations included; of a resumed run that of all
            parts, each up to the checkpoint that the next one went on from.
        started: When the run began, ISO 8601 in UTC.
        device: Where it ran: ``"cpu"``, ``"cuda"`` …
        options: The run's options.
        config: The jump heads' settings; None for the base model.
        fingerprint: Digest of options and config, see :meth:`TrainingOptions.fingerprint`.
        versions: Python and the packages that matter.
        processes: How many took part; a step has ``batch_size`` sequences of each. (default: 1)
        mixed_precision: What ``"auto"`` came to, or was asked for; None where it was not written
            down. (default: None)
    """

    task: str
    primary_metric: str
    metrics: Metrics
    history: tuple[dict[str, float | None], ...]
    steps: int
    best_step: int | None
    seconds: float
    started: str
    device: str
    options: dict[str, Any]
    config: dict[str, Any] | None
    fingerprint: str
    versions: dict[str, str]
    processes: int = 1
    mixed_precision: str | None = None

    @property
    def primary(self) -> float | None:
        """The primary metric on the first dev set; None where it is undefined."""
        return next(iter(self.metrics.values()))[self.primary_metric]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, with the format's version.

        Returns:
            A dictionary that :meth:`from_dict` reads back.
        """
        return {"version": RESULT_VERSION, **asdict(self), "history": list(self.history)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> RunResult:
        """Return the result that :meth:`to_dict` described.

        Args:
            content: Fields by name, and ``version``.

        Returns:
            The result.

        Raises:
            ValueError: If the version is another, or the fields are not a run's.
        """
        fields = dict(content)
        version = fields.pop("version", None)
        if version != RESULT_VERSION:
            raise ValueError(f"results must have version {RESULT_VERSION}, got {version!r}")
        try:
            return cls(**(fields | {"history": tuple(fields["history"])}))
        except (KeyError, TypeError) as error:
            raise ValueError(f"results must be those of one run: {error}") from None


def finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """Numbers as JSON can hold them: None in place of NaN and infinities."""
    plain = {name: float(value) for name, value in values.items()}
    return {name: value if math.isfinite(value) else None for name, value in plain.items()}


def versions() -> dict[str, str]:
    """The versions that a number may depend on, by package; Python's, too."""
    import jat_graph

    found = {package: metadata.version(package) for package in _PACKAGES}
    return {"python": platform.python_version(), **found, "jat_graph": jat_graph.__version__}
