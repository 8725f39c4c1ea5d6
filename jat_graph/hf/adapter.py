"""Give a pretrained model heads of ours, take them off again, and switch them off for a while."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from jat_graph.core.tensors import is_wide
from jat_graph.hf.arguments import token_hooks, with_excluded_tokens
from jat_graph.hf.by_name import reads_by_name
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.hf.jumps import AttachedJumps
from jat_graph.hf.modules import (
    AttachedHeads,
    ConfigsByKind,
    HeadsByModule,
    add_hooks,
    attention_modules,
    execution_device,
    model_parts,
    remove_hooks,
    transformer_of,
)
from jat_graph.hf.names import NAMES
from jat_graph.hf.state import (
    KINDS,
    ROOT_ATTRIBUTE,
    STATE_ATTRIBUTE,
    Attachment,
    check_without_weights,
    layer_state,
    saved_configs,
)
from jat_graph.hf.switching import all_or_nothing, switch_off, switch_on
from jat_graph.jumps.config import JatConfig, check_config
from jat_graph.jumps.fields import EXTERNAL
from jat_graph.jumps.graph_config import PairGraph
from jat_graph.jumps.heads import JumpStrength
from jat_graph.jumps.layers import HeadConvs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from jat_graph.nn.conv_factory import ConvFactory

ModelT = TypeVar("ModelT", bound=nn.Module)


def attach(
    model: ModelT,
    config: JatConfig,
    tokenizer: PreTrainedTokenizerBase | Sequence[int] | None = None,
    conv: ConvFactory | None = None,
) -> ModelT:
    """Give some heads of a pretrained transformer jump self-attention, in place.

    A learned strength, as with ``JatConfig.stones()``, is a module ``strength`` beside queries and
    keys, whose ``theta`` ``[3, hops, jump heads]`` begins at 0, where the model is its base, bit
    for bit. It is saved and loaded with the model, and with a later LoRA adapter by
    ``modules_to_save=["strength"]``. Layers are numbered from 0 in the order of
    ``model.named_modules()``, self-attention only: BART's encoder first, then its decoder.
    Cross-attention, and attention with a learned position bias (T5), stays as it is; what does not
    jump runs on SDPA. With grouped keys (Llama) a jump head is a query head. A causal model
    generates with caches that keep all tokens. ``config.pattern`` limits where every self-attention
    module reads its scores. Heads of several kinds are attached one after the other, if no head is
    to be of two, and nothing is limited to a pattern.

    Args:
        model: A model of transformers, or what holds one: of PEFT, a SentenceTransformer.
        config: The settings.
        tokenizer: Fills the config's ``excluded_token_ids``, where they are empty: token ids, or
            with stones a tokenizer's marks of beginning, end and padding. (default: None)
        conv: A layer of PyG in the place of a product by Â or P: its class, a ``partial`` of it, or
            a factory that takes the size of a head and gives a module, called as ``conv(x,
            edge_index, edge_weight)``, with stones ``conv(x, hyperedge_index, link_weight)``; x are
            the queries of all valid tokens of all sequences and jump heads, then their keys, then
            their values. Two modules are for queries and keys, three for all. Each jump layer has
            its own, ``jump_conv``, saved and loaded with the model. (default: None, the config's)

    Returns:
        The same model.

    Raises:
        ValueError: If the model's attention cannot be reached, it has such heads already, lacks a
            head or a layer, or would look ahead though it is causal; it is then as it was.

    Reference:
        Zhou et al., *Jump Self-attention*, NeurIPS 2022.

    Example:
        >>> import jat_graph
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> model = jat_graph.attach(model, jat_graph.JatConfig.paper(vote_rate=0.05, heads=2))
        >>> print(jat_graph.summary(model))
        BertModel has heads of jat_graph
          layers 0-11: jump heads 0-1 of 4: pairs, vote rate 0.05, hop weights (0, 1)
    """
    base = transformer_of(model)
    check_config(config)
    (kind,) = kinds_of(type(config.graph))
    if conv is not None and kind is not AttachedJumps:
        raise ValueError(f"conv needs a JatConfig of jump heads, got {kind.word} heads")
    config = with_layers(with_excluded_tokens(config, tokenizer), conv)
    with all_or_nothing(model):
        attachment = find_attachment(base)
        if attachment is not None and kind in attachment.configs:
            got = f"{type(base).__name__} already has {kind.word} heads"
            raise ValueError(f"{got}; detach them first")
        _attach(model, base, attachment, kind, config, conv)
    return model


def attach_saved(model: nn.Module, configs: ConfigsByKind, conv: ConvFactory | None) -> None:
    """Give a model the heads that it was saved with; layers of PyG are for those that jump."""
    with all_or_nothing(model):
        for kind, config in configs.items():
            attach(model, config, conv=conv if kind is AttachedJumps else None)


def _attach(
    model: nn.Module,
    base: PreTrainedModel,
    attachment: Attachment | None,
    kind: type[AttachedHeads],
    config: JatConfig,
    conv: ConvFactory | None = None,
) -> None:
    """Give a model heads of a kind that it does not have, beside others or alone."""
    found = attention_modules(base)
    inserted = kind.in_modules(found, config)
    if attachment is not None:
        root: Attachment | None = vars(base).get(ROOT_ATTRIBUTE)
        if root is not attachment:
            name = type(base).__name__
            raise ValueError(f"model must be the one with the other heads, got a {name}")
        _check_room(attachment, inserted, kind, config)
    foreign = getattr(base.config, kind.name, None)
    if foreign is not None and kind not in saved_configs({kind.name: foreign}):
        raise ValueError(f"config.{kind.name} must be free for jat_graph, got {foreign!r}")
    hooks = token_hooks(base, inserted, config.excluded_token_ids)
    if attachment is None:
        ours = {module: len(heads.heads) for module, heads in inserted.items()}
        left = (entry for entry in found if ours.get(entry.module, 0) < entry.num_heads)
        if any(map(reads_by_name, left)):
            name = f"other heads of {type(base).__name__}, on clusters by name until now"
            warnings.warn(f"{name}, run on SDPA; attach clusters to them, too", stacklevel=3)
        attachment = switch_on(model, base, found, inserted, kind.word)
    add_parameters(base, inserted, conv)
    for module, heads in inserted.items():
        getattr(module, STATE_ATTRIBUTE).heads += (heads,)
    attachment.configs[kind] = config
    attachment.note_kinds()
    attachment.token_hooks += add_hooks(hooks)
    setattr(base.config, kind.name, config.to_dict())


def find_attachment(model: nn.Module) -> Attachment | None:
    """Return what the attention modules of a model share, heads that came by name attached."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a model of transformers, got {type(model).__name__}")
    for state in filter(None, map(layer_state, model.modules())):
        if not state.attachment.by_name:
            return state.attachment
    for base in model_parts(model):
        configs = saved_configs(base.config)
        if configs and base.config._attn_implementation in NAMES:
            check_without_weights(configs, type(base).__name__)
            with all_or_nothing(base):
                for kind, config in configs.items():
                    _attach(model, base, vars(base).get(ROOT_ATTRIBUTE), kind, config)
            return vars(base)[ROOT_ATTRIBUTE]  # type: ignore[no-any-return]
    return None


def detach(model: ModelT, config_class: type[Any] | None = None) -> ModelT:
    """Take the heads and their parameters off, and restore the attention that was there before.

    Args:
        model: What :func:`attach` got, or a wrapper around it.
        config_class: The kind of heads to take off, by the class of their graph: ``ClusterGraph``
            for those that read by clusters. (default: None, all kinds)

    Returns:
        The same model.

    Raises:
        ValueError: If the model has no such heads, or is only a part of one that has.

    Example:
        >>> import jat_graph
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> model = jat_graph.attach(model, jat_graph.JatConfig.stones())
        >>> jat_graph.summary(jat_graph.detach(model))
        'BertModel has no jump heads'
    """
    attachment = require_heads(model, kinds_of(config_class))
    roots = [part for part in model_parts(model) if vars(part).get(ROOT_ATTRIBUTE) is attachment]
    if not roots:
        name = type(model).__name__
        raise ValueError(f"model must be the whole model with the heads, got the {name} inside it")
    base = roots[0]
    modules = [module for module in base.modules() if layer_state(module)]
    for kind in [kind for kind in kinds_of(config_class) if kind in attachment.configs]:
        for module in modules:
            state = getattr(module, STATE_ATTRIBUTE)
            kept = tuple(heads for heads in state.heads if not isinstance(heads, kind))
            for name in kind.learns if kept != state.heads else ():
                module._modules.pop(name, None)
            state.heads = kept
        del attachment.configs[kind]
        delattr(base.config, kind.name)
        if kind is AttachedJumps:
            remove_hooks(attachment.token_hooks)
    attachment.note_kinds()
    if not attachment.configs:
        switch_off(attachment, base, modules)
    return model


@contextmanager
def disabled(model: ModelT) -> Iterator[ModelT]:
    """Run a model as its base on SDPA inside the ``with``; it may be nested.

    This holds for the calls of this thread or task, and in compiled code for all calls.

    Args:
        model: A model with jump heads or heads of another kind, or a wrapper around it.

    Yields:
        The same model.

    Raises:
        ValueError: If the model has no such heads.

    Example:
        >>> import jat_graph
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> model = jat_graph.attach(model, jat_graph.JatConfig.paper(vote_rate=0.05))
        >>> with jat_graph.disabled(model):
        ...     jat_graph.summary(model).splitlines()[0]
        'BertModel has heads of jat_graph (switched off)'
    """
    with require_heads(model).having("enabled", False):
        yield model


def attached_config(model: nn.Module, config_class: type[Any] = JatConfig) -> Any:
    """Return the settings of a model's jump heads, or of its heads of another kind.

    Args:
        model: The model, or a wrapper around it.
        config_class: The kind of heads, as for :func:`detach`. (default: ``JatConfig``, jump heads)

    Returns:
        The config that :func:`attach` got; None if the model has no such heads.
    """
    attachment, kinds = find_attachment(model), kinds_of(config_class)
    return None if attachment is None or not kinds else attachment.configs.get(kinds[0])


def kinds_of(config_class: type[Any] | None) -> list[type[AttachedHeads]]:
    """Return the kinds of heads that a class of settings, or of a graph, means; None means all."""
    return [kind for kind in KINDS if config_class in (None, JatConfig, *kind.graphs)]


def learned_by_heads(model: nn.Module) -> dict[str, Tensor]:
    """Return what jump heads have learned: strengths and layers of PyG, by their names."""
    return {
        f"{path}.{name}": tensor.detach()
        for path, module in model.named_modules()
        if isinstance(module, JumpStrength | HeadConvs)
        for name, tensor in module.state_dict(keep_vars=True).items()
    }


def attach_again(
    model: nn.Module,
    config: JatConfig | None,
    learned: Mapping[str, Tensor],
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Give a model the jump heads of another config, or none; what they have learned stays."""
    given: Any = next((m.layers for m in model.modules() if isinstance(m, HeadConvs)), None)
    if attached_config(model) is not None:
        detach(model, PairGraph)  # the jump heads, and not those that read by clusters
    if config is not None:
        own = given is not None and config.conv == EXTERNAL
        attach(model, config, tokenizer, (lambda _: deepcopy(given)) if own else None)
    for name, tensor in learned_by_heads(model).items():
        if name in learned and learned[name].shape == tensor.shape:
            with torch.no_grad():
                tensor.copy_(learned[name])


def with_layers(config: Any, conv: ConvFactory | None) -> Any:
    """Return the settings with a layer of PyG, which only jump heads can have."""
    if config.graph.kind == "clusters" or (conv is None and config.conv is None):
        return config
    from jat_graph.nn.conv_factory import with_conv  # PyG takes seconds to load

    return with_conv(config, conv)


def add_parameters(base: Any, inserted: HeadsByModule, conv: Any) -> list[tuple[nn.Module, str]]:
    """Give modules what they get to learn with their heads, which a loaded one has; name it."""
    added = []
    for module, heads in inserted.items():
        for name, made in heads.new_parameters(module, conv).items():
            setattr(module, name, made.to(*_place(base, module)))
            added.append((module, name))
    return added


def _place(base: nn.Module, module: Any) -> tuple[torch.device, torch.dtype]:
    """Return where, and in which dtype, a module computes, in whatever form its weights are."""
    # Quantized ones may be integers, buffers, or neither; those that are offloaded are on "meta".
    parts = module.parameters(), module.buffers(), base.parameters(), base.buffers()
    weights: list[Tensor] = [weight for part in parts for weight in part]
    device, dtype = weights[0].device, weights[0].dtype
    if not is_wide(weights[0]):
        wide = (weight.dtype for weight in weights if is_wide(weight))
        dtype = module.config.dtype or next(wide, torch.float32)
    return (execution_device(module) or device if device.type == "meta" else device), dtype


def require_heads(model: nn.Module, kinds: Sequence[type[AttachedHeads]] = KINDS) -> Attachment:
    """Return what the attention modules of a model with heads of some kinds share."""
    attachment = find_attachment(model)
    if attachment is None or not any(kind in attachment.configs for kind in kinds):
        words = " or ".join(kind.word for kind in kinds)
        got = "plain " if attachment is None else ""
        raise ValueError(f"model must have {words} heads, got a {got}{type(model).__name__}")
    return attachment


def _check_room(
    attachment: Attachment, inserted: HeadsByModule, kind: type[AttachedHeads], config: JatConfig
) -> None:
    """Refuse heads that those of other kinds leave no room for."""
    for module, heads in inserted.items():
        for other in getattr(module, STATE_ATTRIBUTE).heads:
            if both := sorted(set(heads.heads) & set(other.heads)):
                got = f"head {both[0]} of layer {heads.index} is a {other.word} head and cannot be"
                raise ValueError(f"{got} a {kind.word} head, too; give each kind heads of its own")
    within = attachment.pattern is not None or config.pattern is not None
    if within and AttachedClusters in (kind, *attachment.configs):
        raise ValueError("pattern must be None beside cluster heads, which read all keys")
