"""The README.md of a trained model: what it is, how good, with which settings, how to load it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from jat_graph.files import read_object, write_text
from jat_graph.training.results import RunResult
from jat_graph.training.storage import MODEL_FOLDER

# Where things were on the machine, and what other parts of the card say.
_ELSEWHERE = ("model", "task", "output_dir", "data_dir", "resume")

_TEXT = """\
---
{header}
---

# {name} on {task}

A `{architecture}` that began {origin} and was trained on `{task}` by `jat-graph train`, {heads}.

## Load it

```python
{loading}
```

{note}

## Scores

| set | measure | score |
|---|---|---|
{scores}

{weights} of {steps} steps, seed {seed}, on {device} in {seconds} seconds.

## Settings

```json
{settings}
```

Versions: {versions}.
"""


def write_card(folder: Path, result: RunResult) -> None:
    """Write the card of a run into the folder of its model."""
    from jat_graph.hf.saving import CARD_FILE

    architecture = read_object(folder / "config.json", "config")["architectures"][0]
    write_text(folder / CARD_FILE, model_card(result, architecture))


def model_card(result: RunResult, architecture: str) -> str:
    """Return the card of a model of some class of transformers."""
    from jat_graph.hf.saving import NOTE, loading, settings_text

    jumps = result.config is not None
    kept = f"Weights after {result.best_step}" if result.best_step else "The last weights"
    options = {key: value for key, value in result.options.items() if key not in _ELSEWHERE}
    return _TEXT.format(
        header=_header(result),
        name=_name(result),
        origin=_origin(result),
        task=result.task,
        architecture=architecture,
        heads="with heads of jat_graph" if jumps else "as it is",
        loading=loading(architecture, jumps=jumps),
        note=NOTE if jumps else "It has no heads of jat_graph.",
        scores="\n".join(
            f"| {split} | {metric} | {value:.4f} |" for split, metric, value in _scores(result)
        ),
        weights=kept,
        steps=result.steps,
        seed=options["seed"],
        device=result.device,
        seconds=round(result.seconds),
        settings=settings_text({"heads": result.config, "training": options}),
        versions=", ".join(f"{name} {version}" for name, version in result.versions.items()),
    )


def _header(result: RunResult) -> str:
    """Return what the Hub reads."""
    from huggingface_hub import EvalResult

    from jat_graph.hf.saving import header

    found = [
        EvalResult(
            task_type=result.task,
            dataset_type=result.task,
            dataset_name=result.task,
            dataset_split=split,
            metric_type=metric,
            metric_value=value,
        )
        for split, metric, value in _scores(result)
    ]
    on_hub = not Path(result.options["model"]).exists()
    known: dict[str, Any] = {"base_model": _name(result)} if on_hub else {}
    if found:
        known |= {"model_name": f"{_name(result)} on {result.task}", "eval_results": found}
    return header(jumps=result.config is not None, **known)


def _scores(result: RunResult) -> Iterator[tuple[str, str, float]]:
    """Yield the scores that are defined."""
    for split, metrics in result.metrics.items():
        for metric, value in metrics.items():
            if value is not None:
                yield split, metric, value


def _name(result: RunResult) -> str:
    """Return a model's name on the Hub, or that of its folder, with the one above for ``model``."""
    model: str = result.options["model"]
    if not Path(model).exists():
        return model
    parts = PurePath(Path(model).resolve()).parts
    return "/".join(parts[-2:] if parts[-1] == MODEL_FOLDER else parts[-1:])


def _origin(result: RunResult) -> str:
    """Say what a model began as, of a folder no more than is known of it."""
    if result.options.get("from_scratch"):
        return "with new weights"
    where = "the model in the folder " if Path(result.options["model"]).exists() else ""
    return f"as {where}`{_name(result)}`"
