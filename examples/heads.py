"""Heads that the run scripts place in a model: from presets, files and single settings."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset
from torch import Tensor
from transformers import (
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
)

from examples.data import draw_rows
from jat_graph import JatConfig, attach, calibrate
from jat_graph.clusters.settings import NEVER
from jat_graph.core.files import read_object
from jat_graph.hf.by_name import graph_by_name
from jat_graph.hf.capture import modules_with
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.looking.cli.options import PRESETS, read_values

if TYPE_CHECKING:
    from examples.arguments import ModelArguments

CALIBRATION_BATCHES = 8
TOLD = ("labels", "start_positions", "end_positions")  # what a model learns from


def saved_heads(config: PreTrainedConfig) -> bool:
    """Whether a model was saved with jump heads."""
    return isinstance(getattr(config, "jat", None), dict)


def read_heads(model: ModelArguments) -> JatConfig | None:
    """The settings of the heads that are inserted; None leaves a model as it is."""
    if model.jat_config and model.jat_preset:
        raise ValueError("--jat_config and --jat_preset exclude each other")
    heads = None
    if model.jat_preset is not None:
        if model.jat_preset not in PRESETS:
            names = ", ".join(PRESETS)
            raise ValueError(f"jat_preset must be one of {names}, got {model.jat_preset!r}")
        heads = getattr(JatConfig, model.jat_preset)()
    elif model.jat_config is not None:
        content = read_object(Path(model.jat_config), "settings of heads")
        heads = JatConfig.from_dict(content["jat"] if set(content) == {"jat"} else content)
    elif model.jat_set or model.density is not None:
        heads = JatConfig()
    changes = read_values("jat_set", model.jat_set)
    return heads.replace(**changes) if heads and changes else heads


def insert_heads(
    loaded: PreTrainedModel,
    model: ModelArguments,
    args: TrainingArguments,
    tokenizer: PreTrainedTokenizerBase | None,
    train: Dataset | None,
    collate: Callable[[list[Any]], dict[str, Tensor]],
) -> PreTrainedModel:
    """Attach heads to a model; thresholds are calibrated on training rows where it is asked for."""
    heads = read_heads(model)
    if heads and saved_heads(loaded.config):
        raise ValueError(
            f"model {model.model_name_or_path} has heads already: leave out --jat_… and --density"
        )
    if heads and model.density is not None:
        file = Path(str(args.output_dir), "calibrated.json")
        with args.main_process_first():  # thresholds must be the same in each, to the last bit
            if not file.exists():
                if train is None:
                    raise ValueError("density needs --do_train: it is measured on training rows")
                file.parent.mkdir(parents=True, exist_ok=True)
                size = args.train_batch_size * args.world_size
                drawn = [*draw_rows(train, CALIBRATION_BATCHES * size)]  # once for all seeds
                batches = [collate(drawn[i : i + size]) for i in range(0, len(drawn), size)]
                for batch, told in product(batches, TOLD):
                    batch.pop(told, None)
                calibrate(loaded, batches, density=model.density, config=heads).save(file)
        heads = JatConfig.load(file)
    if heads:
        attach(loaded, heads, tokenizer)
    return loaded


def first_length_on_clusters(model: PreTrainedModel, causal: bool) -> int | None:
    """The shortest length that some head reads by clusters; None if no head ever does."""
    named = graph_by_name(model.config)
    layers = (layer.rules[causal] for _, layer in modules_with(model, AttachedClusters))
    rules = [rule for own in ([named.rules(1, causal)] if named else layers) for rule in own]
    first = min((rule.first for rule in rules), default=NEVER)
    return first + 1 if first + 1 < NEVER else None
