"""Settings of jump heads measured on a task's own training texts."""

from __future__ import annotations

from dataclasses import replace

from jat_graph.config import JatConfig
from jat_graph.tasks import get_task
from jat_graph.training.data import TRAIN, load_splits
from jat_graph.training.loading import load_for_training
from jat_graph.training.objectives import objective_for
from jat_graph.training.options import TrainingOptions
from jat_graph.training.quiet import quiet
from jat_graph.training.runner import require_extra


def calibrate_on_task(
    options: TrainingOptions,
    config: JatConfig | None = None,
    density: float = 0.05,
    *,
    batches: int = 8,
) -> JatConfig:
    """Measure thresholds on training texts, with the pretrained model before any training.

    Args:
        options: The run whose model, task, data and batch size are meant.
        config: Settings of the jump heads, threshold aside. (default: None, which means
            :class:`JatConfig`'s)
        density: Share of token pairs to join in each head. (default: 0.05)
        batches: Batches of ``options.batch_size`` texts to measure on, drawn once for all seeds;
            ``calibrate`` holds some of them out. (default: 8)

    Returns:
        The config with a table of thresholds, an arm for :func:`jat_graph.training.compare`.

    Raises:
        ValueError: If an option or the density does not fit.
        OSError: If data cannot be read.
    """
    if batches < 1:
        raise ValueError(f"batches must be a positive integer, got {batches}")
    require_extra()
    from jat_graph.calibration import calibrate

    wanted = batches * options.batch_size
    drawn = replace(options, max_train_samples=min(wanted, options.max_train_samples or wanted))
    objective = objective_for(get_task(options.task), drawn)
    rows = load_splits(objective, (TRAIN,))[TRAIN].features
    rows = rows.remove_columns([name for name in objective.labels if name in rows.column_names])
    with quiet():
        model = load_for_training(objective)
    texts = list(rows)
    padded = [
        objective.collate(texts[start : start + options.batch_size])
        for start in range(0, len(texts), options.batch_size)
    ]
    return calibrate(model, padded, density=density, config=config)
