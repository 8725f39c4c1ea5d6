"""Put a whole model on our attention function, and give it back the one that it had."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from jat_graph.hf.interface import (
    NAME,
    NAMES,
    SAVED_NAME,
    STATE_ATTRIBUTE,
    Attachment,
    LayerState,
    note_inputs,
)
from jat_graph.hf.kinds import LayerHeads
from jat_graph.hf.modules import AttentionModule, model_parts
from jat_graph.hf.peft_settings import carry_nothing, carry_settings
from jat_graph.hf.positions import position_tables

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedConfig, PreTrainedModel

SETTER = "set_attn_implementation"


def switch_on(
    base: PreTrainedModel,
    found: list[AttentionModule],
    placed: dict[nn.Module, LayerHeads],
    kind: type[LayerHeads],
) -> Attachment:
    """Give a model our attention function, without any heads yet, or leave it as it was."""
    implementations = _current_implementations(base)
    try:
        base.set_attn_implementation(NAME)
        _keep_off(base, implementations)
        for entry in found:
            if entry.module in placed and entry.config._attn_implementation != NAME:
                raise ValueError(
                    f"{type(base).__name__} cannot have {kind.word} heads: transformers cannot "
                    f"change the attention of {type(entry.module).__name__}"
                )
    except BaseException:
        _restore(implementations)
        raise
    served = [entry for entry in found if entry.config._attn_implementation == NAME]
    parts = list(model_parts(base))
    attachment = Attachment(base.config, implementations, len(served), len(parts))
    for entry in served:
        setattr(entry.module, STATE_ATTRIBUTE, LayerState(attachment, entry.left_alone is None))
    for part in parts:
        vars(part)[SETTER] = refuse_change
    attachment.hooks = add_hooks(_hooks(base, attachment, [entry.module for entry in served]))
    carrying = partial(carry_settings, attachment)
    attachment.hooks.append(base.register_state_dict_pre_hook(carrying))  # type: ignore[no-untyped-call]
    # Saved with the model, so that a plain from_pretrained does not run stock attention silently.
    base.config.attn_implementation = SAVED_NAME
    return attachment


def add_hooks(hooks: list[tuple[nn.Module, Any]]) -> list[RemovableHandle]:
    """Let hooks see what their modules are called with."""
    return [module.register_forward_pre_hook(hook, with_kwargs=True) for module, hook in hooks]


def remove_hooks(handles: list[RemovableHandle]) -> None:
    """Take hooks off their modules, and forget them."""
    while handles:
        handles.pop().remove()


def _hooks(
    base: PreTrainedModel, attachment: Attachment, served: list[nn.Module]
) -> list[tuple[nn.Module, Any]]:
    """Return what lets the attention function know what only its module, or the model, is told."""
    hooks: list[tuple[nn.Module, Any]] = [(module, note_inputs) for module in served]
    for part in model_parts(base):
        hooks.append((part, attachment.start_forward if part is base else attachment.enter_part))
    return hooks + [(table.part, table.check_length) for table in position_tables(base)]


def switch_off(model: nn.Module, attachment: Attachment, modules: list[nn.Module]) -> None:
    """Give a model without heads of ours the attention that it had before."""
    for module in modules:
        delattr(module, STATE_ATTRIBUTE)
    remove_hooks(attachment.hooks)
    for part in attached_parts(model):
        delattr(part, SETTER)
        carry_nothing(part)
    _restore(attachment.implementations)
    del attachment.root_config.attn_implementation


def attached_parts(model: nn.Module) -> list[nn.Module]:
    """Return the models of transformers inside a model whose attention is not to be changed."""
    return [module for module in model.modules() if SETTER in vars(module)]


def refuse_change(attn_implementation: str | dict[str, Any], *args: Any, **kwargs: Any) -> None:
    """Stand for ``set_attn_implementation`` in an attached model, which would lose its heads."""
    if attn_implementation != NAME:
        raise ValueError(
            f"attn_implementation must stay {NAME!r} while heads are attached, got "
            f"{attn_implementation!r}; take them off by jat_graph.detach, or switch them off by "
            "jat_graph.disabled"
        )


def _current_implementations(
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
    return [(config, "sdpa" if name in NAMES else name) for config, name in names]


def _restore(implementations: list[tuple[PreTrainedConfig, str | None]]) -> None:
    """Give configurations the attention that they had before."""
    for config, name in implementations:
        config._attn_implementation = {"": name}  # its own only, not that of sub-configurations


def _keep_off(
    base: PreTrainedModel, implementations: list[tuple[PreTrainedConfig, str | None]]
) -> None:
    """Give parts that cannot run on SDPA their own attention, and its masks, back."""
    off = {id(part.config) for part in model_parts(base) if not part._supports_sdpa}
    _restore([(config, name) for config, name in implementations if id(config) in off])
