"""Give a pretrained model jump heads, take them off again, and switch them off for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from torch import nn

from jat_graph.config import JatConfig, check_config
from jat_graph.hf.implementations import current_implementations, keep_off, restore
from jat_graph.hf.interface import NAME
from jat_graph.hf.modules import (
    AttentionModule,
    attention_modules,
    model_parts,
    serves_several_layers,
    transformer_of,
)
from jat_graph.hf.positions import position_tables
from jat_graph.hf.state import (
    STATE_ATTRIBUTE,
    Attachment,
    JumpLayer,
    LayerState,
    find_attachment,
    layer_state,
    require_attachment,
)
from jat_graph.hf.triplet import attach_triplets, detach_triplets
from jat_graph.hf.triplet_config import TripletConfig
from jat_graph.hf.triplet_interface import find_triplets
from jat_graph.masks import TokenMask
from jat_graph.voting.keys import unsupported_selection

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ModelT = TypeVar("ModelT", bound=nn.Module)


def attach(model: ModelT, config: JatConfig | TripletConfig) -> ModelT:
    """Give some heads of a pretrained transformer jump self-attention, in place.

    The model gets no new parameters. Layers are numbered from 0 in the order of
    ``model.named_modules()``, self-attention only: BART's encoder first, then its decoder.
    Cross-attention, and attention with a learned position bias (T5), stays as it is. Everything
    that does not jump runs on SDPA, whatever ran before.

    With grouped keys (Llama) a jump head is a query head: it has its own graph, and its keys are
    those of its group. Two jump heads of one group share their keys, not their graph.

    A causal model generates with ``DynamicCache``, the default, in which jump heads keep what new
    tokens need of the earlier ones; other caches raise. ``config.pattern`` limits where every
    self-attention module reads its scores, with jump heads or without.

    Args:
        model: A model of transformers, or a PEFT model around one.
        config: The settings. Those of a :class:`jat_graph.hf.TripletConfig` place triplet heads,
            which the paper compares with, and their parameters.

    Returns:
        The same model.

    Raises:
        ValueError: If the model's attention cannot be reached, it has jump heads already, it lacks
            a head or a layer, or a causal model would look ahead; the model is then as it was.

    Reference:
        Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*,
        NeurIPS 2022.
    """
    base = transformer_of(model)
    _check_free(base)
    if isinstance(config, TripletConfig):
        return attach_triplets(model, config)
    check_config(config)
    found = attention_modules(base)
    layers = _jump_layers(found, config)
    _switch_on(base, config, found, layers)
    return model


def detach(model: ModelT) -> ModelT:
    """Take the jump heads off, and restore the attention that the model had before.

    Args:
        model: What :func:`attach` got, or a wrapper around it.

    Returns:
        The same model.

    Raises:
        ValueError: If the model has no jump heads, or is only a part of one that has.
    """
    triplets = find_triplets(model)
    if triplets is not None:
        return detach_triplets(model, triplets)
    attachment = require_attachment(model)
    modules = [module for module in model.modules() if layer_state(module) is not None]
    if len(modules) != attachment.num_modules:
        raise ValueError(
            f"model must be the whole model that jump heads were attached to, got a "
            f"{type(model).__name__} with {len(modules)} of its {attachment.num_modules} "
            "attention modules"
        )
    for module in modules:
        delattr(module, STATE_ATTRIBUTE)
    for hook in attachment.hooks:
        hook.remove()
    restore(attachment.implementations)
    for name in ("jat", "attn_implementation"):
        delattr(attachment.root_config, name)
    return model


@contextmanager
def disabled(model: ModelT) -> Iterator[ModelT]:
    """Run a model as its base on SDPA inside the ``with``; it may be nested.

    Args:
        model: A model with jump heads, or a wrapper around it.

    Yields:
        The same model.

    Raises:
        ValueError: If the model has no jump heads.
    """
    attachment = find_triplets(model) or require_attachment(model)
    previous = attachment.enabled
    attachment.enabled = False
    try:
        yield model
    finally:
        attachment.enabled = previous


def _check_free(base: PreTrainedModel) -> None:
    """Refuse a model that has heads of ours already."""
    for kind, found in (("jump", find_attachment(base)), ("triplet", find_triplets(base))):
        if found is not None:
            raise ValueError(f"{type(base).__name__} already has {kind} heads; detach them first")


def _jump_layers(found: list[AttentionModule], config: JatConfig) -> dict[nn.Module, JumpLayer]:
    """Return what jumps where, with everything checked that can be known without an input."""
    candidates = [entry for entry in found if entry.left_alone is None]
    if config.layers is not None and serves_several_layers(candidates):
        raise ValueError(
            f"layers must be None, because one {type(candidates[0].module).__name__} serves "
            f"several layers of this model, got {config.layers}"
        )
    indices = config.layer_indices(len(candidates))
    if isinstance(config.threshold, tuple) and len(config.threshold) != len(indices):
        raise ValueError(
            f"threshold table must have {len(indices)} rows, one for each jump layer, "
            f"got {len(config.threshold)}"
        )
    return {
        candidates[index].module: _jump_layer(candidates[index], index, row, config)
        for row, index in enumerate(indices)
    }


def _jump_layer(entry: AttentionModule, index: int, row: int, config: JatConfig) -> JumpLayer:
    heads = config.head_indices(entry.num_heads)
    jump = JumpLayer(config.for_layer(row, heads), heads, index, entry.num_heads)
    if entry.is_causal and not jump.is_ordinary:
        reasons = unsupported_selection(config, TokenMask(causal=True))
        if reasons:
            raise ValueError(f"{type(entry.module).__name__} is causal: {'; '.join(reasons)}")
    return jump


def _switch_on(
    base: PreTrainedModel,
    config: JatConfig,
    found: list[AttentionModule],
    layers: dict[nn.Module, JumpLayer],
) -> None:
    """Change the model, or leave it as it was."""
    implementations = current_implementations(base)
    try:
        base.set_attn_implementation(NAME)
        keep_off(base, implementations)
        _check_switched(base, [entry for entry in found if entry.module in layers])
    except BaseException:
        restore(implementations)
        raise
    served = [entry.module for entry in found if entry.config._attn_implementation == NAME]
    attachment = Attachment(config, base.config, implementations, len(served))
    own = {entry.module for entry in found if entry.left_alone is None}
    pattern = config.attention_pattern()
    for module in served:
        state = LayerState(attachment, layers.get(module), pattern if module in own else None)
        setattr(module, STATE_ATTRIBUTE, state)
        if state.jump is not None or state.pattern is not None:
            note = module.register_forward_pre_hook(attachment.note_cache, with_kwargs=True)
            attachment.hooks.append(note)
    _add_hooks(base, attachment)
    base.config.jat = config.to_dict()
    # Saved with the model, so that a plain from_pretrained does not run stock attention silently.
    base.config.attn_implementation = NAME


def _check_switched(base: PreTrainedModel, jumping: list[AttentionModule]) -> None:
    for entry in jumping:
        if entry.config._attn_implementation != NAME:
            raise ValueError(
                f"{type(base).__name__} cannot have jump heads: transformers cannot change "
                f"the attention of {type(entry.module).__name__}"
            )


def _add_hooks(base: PreTrainedModel, attachment: Attachment) -> None:
    for part in model_parts(base):
        hook = attachment.start_forward if part is base else attachment.enter_part
        attachment.hooks.append(part.register_forward_pre_hook(hook, with_kwargs=True))
    for table in position_tables(base):
        check = table.check_length
        attachment.hooks.append(table.part.register_forward_pre_hook(check, with_kwargs=True))
