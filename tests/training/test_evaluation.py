"""Evaluation of trained folders; that it repeats a run's own scores is tested with the runner."""

import pytest

from jat_graph.training import evaluate
from tests.training.support import Options


def test_an_untrained_model_is_refused(options: Options) -> None:
    with pytest.raises(ValueError, match="must be a trained classifier"):
        evaluate(options().model, "cola", options().data_dir, device="cpu", progress=False)


def test_an_unknown_task_is_refused(options: Options) -> None:
    with pytest.raises(ValueError, match="colour"):
        evaluate(options().model, "colour", progress=False)
