"""Put a whole model on our attention function, and give it back the one that it had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from jat_graph.hf.interface import end_forward, hand_inputs, start_forward
from jat_graph.hf.modules import (
    AttentionModule,
    HeadsByModule,
    add_hooks,
    model_parts,
    remove_hooks,
    takes_any_argument,
)
from jat_graph.hf.names import NAME, NAMES, SAVED_NAME
from jat_graph.hf.positions import position_tables
from jat_graph.hf.state import ROOT_ATTRIBUTE, STATE_ATTRIBUTE, Attachment, LayerState


def switch_on(
    model: nn.Module,
    base: PreTrainedModel,
    found: list[AttentionModule],
    inserted: HeadsByModule,
    word: str,
) -> Attachment:
    """Give a model our attention function, without any heads yet."""
    _own_configs(model)
    implementations = _current_implementations(base)
    base.set_attn_implementation(NAME)
    # Parts that cannot run on SDPA get their own attention, and its masks, back.
    off = {id(part.config) for part in model_parts(base) if not part._supports_sdpa}
    for config, name in implementations:
        if id(config) in off:
            config._attn_implementation = {"": name}
    for entry in found:
        if entry.module in inserted and entry.module.config._attn_implementation != NAME:
            why = f"transformers cannot change the attention of {type(entry.module).__name__}"
            raise ValueError(f"{type(base).__name__} cannot have {word} heads: {why}")
    attachment = Attachment(implementations)
    setattr(base, ROOT_ATTRIBUTE, attachment)
    hooks: list[tuple[nn.Module, Any]] = []
    for entry in found:
        if entry.module.config._attn_implementation == NAME:
            setattr(entry.module, STATE_ATTRIBUTE, LayerState(attachment, entry.left_alone is None))
            hands_on = takes_any_argument(type(entry.module))
            hooks.append((entry.module, partial(hand_inputs, hands_on)))
    tables = list(position_tables(base))
    for part in model_parts(base):
        own = [table for table in tables if table.part is part]
        hooks.append((part, partial(start_forward, attachment, part is base, own)))
        end = partial(end_forward, attachment)
        attachment.hooks.append(part.register_forward_hook(end, always_call=True))
    attachment.hooks += add_hooks(hooks)
    # Saved with the model, so that a plain from_pretrained does not run stock attention silently.
    base.config.attn_implementation = SAVED_NAME
    return attachment


def switch_off(attachment: Attachment, base: PreTrainedModel, modules: list[nn.Module]) -> None:
    """Give a model without heads of ours the attention that it had before."""
    for module in modules:
        delattr(module, STATE_ATTRIBUTE)
    delattr(base, ROOT_ATTRIBUTE)
    remove_hooks(attachment.hooks)
    for config, name in attachment.implementations:
        config._attn_implementation = {"": name}  # its own only, not that of sub-configurations
    vars(base.config).pop("attn_implementation", None)


@contextmanager
def all_or_nothing(model: nn.Module) -> Iterator[None]:
    """Give the modules of a model back what they held, should what is done to them fail."""
    attributes = [vars(module) for module in model.modules()]
    inner = [x for own in attributes for x in own.values() if isinstance(x, dict)]
    before = [(table, table.copy()) for table in (*attributes, *inner)]
    try:
        yield
    except BaseException:
        for table, held in before:
            table.clear()
            table.update(held)
        raise


def _own_configs(model: nn.Module) -> None:
    """Give a model copies of configurations that others may share."""
    copies: dict[int, Any] = {}
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, PreTrainedConfig):
                setattr(module, name, deepcopy(value, copies))


def _current_implementations(base: PreTrainedModel) -> list[tuple[PreTrainedConfig, str | None]]:
    """Return every configuration in a model with its attention; SDPA where that is ours by name."""
    configs: list[Any] = [part.config for part in model_parts(base)]
    for config in configs:  # which grows by their parts
        parts = (getattr(config, name, None) for name in config.sub_configs)
        configs += [part for part in parts if part is not None]
    names = ((config, config._attn_implementation) for config in configs)
    return [(config, "sdpa" if name in NAMES else name) for config, name in names]
