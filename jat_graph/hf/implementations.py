"""Which attention each configuration inside a model names, and how to give it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jat_graph.hf.modules import model_parts

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

OURS = ("jat", "triplet")


def current_implementations(
    base: PreTrainedModel,
) -> list[tuple[PreTrainedConfig, str | None]]:
    """Return every configuration in a model with the name of its attention.

    A model that was saved with our heads and loaded by transformers alone is on them already.
    """
    configs: dict[int, PreTrainedConfig] = {}
    waiting: list[Any] = [part.config for part in model_parts(base)]
    while waiting:
        config = waiting.pop()
        if config is not None and id(config) not in configs:
            configs[id(config)] = config
            waiting.extend(getattr(config, name, None) for name in config.sub_configs)
    names = ((config, config._attn_implementation) for config in configs.values())
    return [(config, "sdpa" if name in OURS else name) for config, name in names]


def restore(implementations: list[tuple[PreTrainedConfig, str | None]]) -> None:
    """Give configurations the attention that they had before."""
    for config, name in implementations:
        config._attn_implementation = {"": name}  # its own only, not that of sub-configurations


def keep_off(
    base: PreTrainedModel, implementations: list[tuple[PreTrainedConfig, str | None]]
) -> None:
    """Give parts that cannot run on SDPA their own attention, and its masks, back."""
    off = {id(part.config) for part in model_parts(base) if not part._supports_sdpa}
    restore([(config, name) for config, name in implementations if id(config) in off])
