"""Heads that the run scripts place in a model: from presets, files and single settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from examples.data import draw_rows
from jat_graph import JatConfig, attach, calibrate
from jat_graph.attention.clusters import shortest_length
from jat_graph.files import read_object
from jat_graph.hf import FilterConfig, TripletConfig
from jat_graph.hf.capture import modules_with
from jat_graph.hf.clustered import graph_by_name
from jat_graph.hf.jump_layer import ClusterLayer

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from examples.arguments import ModelArguments

Heads = JatConfig | TripletConfig | FilterConfig

HEADS = {"jat": JatConfig, "triplet": TripletConfig, "attention_filter": FilterConfig}
PRESETS: dict[str, Callable[[], Heads]] = {
    "paper": JatConfig.paper,
    "released": JatConfig.released,
    "stones": JatConfig.stones,
    "clustered": JatConfig.clustered,
    "triplet": TripletConfig,
    "gfsa": FilterConfig,
    "ppr": lambda: FilterConfig(rule="ppr"),
}
CALIBRATION_BATCHES = 8


def saved_heads(config: PreTrainedConfig) -> list[str]:
    """The kinds of heads that a model was saved with."""
    return [name for name in HEADS if isinstance(getattr(config, name, None), dict)]


def read_heads(model: ModelArguments) -> list[Heads]:
    """The settings of the heads that are inserted; none leaves a model as it is."""
    if model.jat_config and model.jat_preset:
        raise ValueError("--jat_config and --jat_preset exclude each other")
    heads: list[Heads] = []
    if model.jat_preset is not None:
        if model.jat_preset not in PRESETS:
            names = ", ".join(PRESETS)
            raise ValueError(f"jat_preset must be one of {names}, got {model.jat_preset!r}")
        heads = [PRESETS[model.jat_preset]()]
    elif model.jat_config is not None:
        content = read_object(Path(model.jat_config), "settings of heads")
        kind = (
            "attention_filter" if "rule" in content else "triplet" if "pairs" in content else "jat"
        )
        named = content if set(content) <= set(HEADS) else {kind: content}
        heads = [HEADS[name].from_dict(settings) for name, settings in named.items()]
    elif model.jat_set or model.density is not None:
        heads = [JatConfig()]
    if model.jat_set:
        heads[0] = _with_settings(heads[0], model.jat_set)
    if model.density is not None and not isinstance(heads[0], JatConfig):
        raise ValueError("density must be of jump heads, got heads without a threshold")
    return heads


def _with_settings(heads: Heads, settings: Sequence[str]) -> Heads:
    """Settings with other fields, each NAME=VALUE with a value in JSON or a word."""
    changes = {}
    for text in settings:
        name, separator, value = text.partition("=")
        if not separator:
            raise ValueError(f"jat_set must be NAME=VALUE, got {text!r}")
        try:
            changes[name] = json.loads(value)
        except json.JSONDecodeError:
            changes[name] = value
    if isinstance(heads, JatConfig):
        return heads.replace(**changes)
    return type(heads).from_dict({**heads.to_dict(), **changes})


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
    for config in heads[1:]:
        attach(loaded, config, tokenizer)
    if heads and model.density is not None:
        file = Path(str(args.output_dir), "calibrated.json")
        with args.main_process_first():  # thresholds must be the same in each, to the last bit
            if not file.exists():
                if train is None:
                    raise ValueError("density needs --do_train: it is measured on training rows")
                file.parent.mkdir(parents=True, exist_ok=True)
                size = args.train_batch_size * args.world_size
                batches = _calibration_batches(train, size, collate)
                calibrate(loaded, batches, density=model.density, config=heads[0]).save(file)
        heads[0] = JatConfig.load(file)
    if heads:
        attach(loaded, heads[0], tokenizer)
    return loaded


def first_length_on_clusters(model: PreTrainedModel, causal: bool) -> int | None:
    """The shortest length that some head reads by clusters; None if no head ever does."""
    named = graph_by_name(model.config)
    layers = (layer.rules for _, layer in modules_with(model, ClusterLayer))
    rules = [rule for own in ([named.rules(1)] if named else layers) for rule in own]
    return min((shortest_length(rule, causal) for rule in rules), default=None)


def _calibration_batches(
    train: Dataset, size: int, collate: Callable[[list[Any]], dict[str, Tensor]]
) -> list[dict[str, Tensor]]:
    """Batches of training rows, drawn once for all seeds, without what a model is told."""
    drawn = [*draw_rows(train, CALIBRATION_BATCHES * size)]
    batches = [collate(drawn[start : start + size]) for start in range(0, len(drawn), size)]
    told = ("labels", "start_positions", "end_positions")
    return [{k: v for k, v in batch.items() if k not in told} for batch in batches]
