"""Settings of jump heads measured on a task's own training texts."""

from __future__ import annotations

from dataclasses import replace

from jat_graph.config import JatConfig
from jat_graph.tasks import get_task
from jat_graph.training.data import TRAIN, load_splits
from jat_graph.training.loading import load_for_training
from jat_graph.training.objectives import objective_for
from jat_graph.training.options import TrainingOptions
from jat_graph.training.processes import join
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
    require_extra()
    # Once for all processes: thresholds must be the same in each, to the last bit.
    return join(options).on_main(lambda: _measure(options, config, density, batches))


def _measure(
    options: TrainingOptions, config: JatConfig | None, density: float, batches: int
) -> JatConfig:
    from jat_graph.inspection.calibration import calibrate

    if batches < 1:
        raise ValueError(f"batches must be a positive integer, got {batches}")
    wanted = batches * options.batch_size
    drawn = replace(options, max_train_samples=min(wanted, options.max_train_samples or wanted))
    objective = objective_for(get_task(options.task), drawn)
    texts = list(load_splits(objective, (TRAIN,))[TRAIN].features)
    with quiet():
        model = load_for_training(objective)
    padded = [
        objective.collate(texts[start : start + options.batch_size])
        for start in range(0, len(texts), options.batch_size)
    ]
    inputs = [
        {name: tensor for name, tensor in batch.items() if name not in objective.labels}
        for batch in padded
    ]
    return calibrate(model, inputs, density=density, config=config)
