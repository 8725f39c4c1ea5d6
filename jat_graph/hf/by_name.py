"""Attention by clusters under a name that any model of transformers takes: nothing is attached."""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from jat_graph.clusters.choice import Rule
from jat_graph.clusters.settings import ClusterGraph
from jat_graph.core.compiling import in_transform
from jat_graph.core.heads import HeadOutput
from jat_graph.core.masks import resolve_once, shared_row, token_documents
from jat_graph.core.tensors import default_scale, read_global
from jat_graph.hf.clusters import check_global, read_rules
from jat_graph.hf.inputs import AttentionInputs, hand_cache, jat_mask, why_left_alone, window_of
from jat_graph.hf.modules import AttentionModule, takes_any_argument
from jat_graph.hf.names import CLUSTERED, GLOBAL, INPUTS, MARK, SDPA_IGNORES, refuse_name
from jat_graph.hf.reasons import ELSEWHERE, NO_NAME, POSITION_BIAS, WITHIN
from jat_graph.jumps.graph_config import change_graph, without_gone

LEFT = "runs on SDPA instead of clusters"
_warned: set[tuple[int, str]] = set()  # by the identity of a model's configuration
_following = weakref.WeakSet[nn.Module]()  # modules that hand their cache on from the next call on


def register_clustered(**settings: Any) -> str:
    """Return a name for attention by clusters with some settings, which transformers then knows.

    ``"clustered"`` is known from the import of :mod:`jat_graph.hf` on, with the default settings or
    those that the model's own configuration holds in a dict ``clustered``, which is saved with it.
    So are ``"clustered:keys=64"`` and the same with 8, 16, 32 and 128 keys. Any other name is for a
    model whose configuration is to stay as it is, or has several parts. It is not saved, and is
    known in this process only.

    Args:
        settings: Fields of :class:`jat_graph.ClusterGraph`, the same for all heads; they count
            before those of a configuration.

    Returns:
        The name, such as ``"clustered:keys=64,groups=32"``.

    Raises:
        ValueError: If a field is unknown or out of its range.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> from jat_graph.hf import register_clustered
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> model.set_attn_implementation(register_clustered(keys=64, groups=32))
        >>> model.config._attn_implementation
        'clustered:keys=64,groups=32'
    """
    _graph({}, settings)
    order = sorted(settings, key=ClusterGraph.names().index)
    words = ",".join(f"{name}={settings[name]}" for name in order)
    name = f"{CLUSTERED}:{words}" if words else CLUSTERED
    AttentionInterface.register(name, partial(_attend, settings))
    AttentionMaskInterface.register(name, jat_mask)
    return name


def graph_by_name(config: PreTrainedConfig) -> ClusterGraph | None:
    """Return the settings of a model that runs on such a name; None if it does not."""
    name = str(config._attn_implementation)
    if name.partition(":")[0] != CLUSTERED:
        return None
    if name not in AttentionInterface().valid_keys():  # type: ignore[no-untyped-call]
        raise ValueError(f"{name!r} must be made known by register_clustered in this process, too")
    attend: Any = AttentionInterface()[name]  # type: ignore[no-untyped-call]
    return _graph(getattr(config, CLUSTERED, {}), *attend.args)


def reads_by_name(entry: AttentionModule) -> bool:
    """Tell whether a module is on such a name, and has no window of its model's own."""
    served = entry.left_alone is None and window_of(entry.module) is None
    return served and graph_by_name(entry.module.config) is not None


def _attend(
    settings: Mapping[str, Any],  # those of the name
    module: nn.Module,
    query: Tensor,  # after rotary embeddings, [B, H, L, D]
    key: Tensor,  # one for each group of query heads, [B, Hkv, L, D]
    value: Tensor,  # [B, Hkv, L, Dv]
    attention_mask: Tensor | None,  # bool or additive [B, 1, L, L]
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:  # [B, L, H, Dv]
    """Run one attention module by clusters, or by SDPA where it is short or they cannot serve."""
    name = type(module).__name__
    output = None
    everywhere = kwargs.pop(GLOBAL, None)
    cache = kwargs.pop(INPUTS, None)
    if attention_mask is not None:
        attention_mask = shared_row(attention_mask)  # SDPA would write an expanded one out
    given = kwargs.get("is_causal")
    alone = attention_mask is None and query.size(2) > 1  # when SDPA is told of an order
    own = bool(getattr(module, "is_causal", given is None))
    causal = own if given is None else bool(given) or (own and not alone)
    scale = default_scale(query.size(-1)) if scaling is None else scaling
    call = (module, query, key, value, attention_mask, causal and alone, dropout, scale, cache)
    inputs = AttentionInputs(*call)
    reason = _reason(inputs, causal, kwargs)
    for argument in (*SDPA_IGNORES, "softcap", "graphs"):
        if kwargs.get(argument) is not None:
            raise ValueError(f"{name} passes {argument}, which neither clusters nor SDPA can use")
    ordered = causal and inputs.in_order(causal)
    if reason is None and everywhere is not None:
        inputs = replace(inputs, everywhere=read_global(everywhere, query))
        check_global(inputs, ordered)
    saved = getattr(module.config, CLUSTERED, {})
    saved = {**saved} if isinstance(saved, dict) else saved  # new keys are seen in compiled code
    rule = Rule(*_rule(saved, settings, ordered, query.device.type))
    if reason is None and key.size(2) > rule.first:
        output = (_read_in_order if ordered else _read_whole)(inputs, rule)
        if output is None and not ordered:
            reason = "its mask has more than padding and documents"
    if reason:
        _warn(module, f"{LEFT} where {reason}")
    if output is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **kwargs
        )
    if kwargs.get("output_attentions"):
        _warn(module, "gives no attention probabilities with clusters: take 'eager'")
    return output.transpose(1, 2).contiguous(), None


def _read_whole(inputs: AttentionInputs, rule: Rule) -> Tensor | None:  # [B, H, L, Dv]
    """Return what heads read in any order; None where the mask says more, or hides what it says."""
    from jat_graph.clusters.api import read_long  # which few processes need

    mask = inputs.attention_mask
    query = inputs.query
    documents = None
    if mask is not None:
        padding = mask.dtype == torch.bool and mask.size(1) == mask.size(2) == 1
        if torch.compiler.is_compiling() and not padding:  # when no branch may depend on values
            return None
        found = resolve_once(mask, False, query)
        try:
            documents = token_documents(found, query)
        except ValueError:
            return None
    given = query, inputs.key, inputs.value, rule, documents, inputs.everywhere
    return read_long(*given, dropout_p=inputs.dropout, scale=inputs.scale)


def _read_in_order(inputs: AttentionInputs, rule: Rule) -> Tensor | None:  # [B, H, L, Dv]
    """Return what heads read in causal order; None where SDPA is to read it."""
    compiling = torch.compiler.is_compiling()
    inputs = inputs if inputs.is_whole else inputs.without_room()
    module = inputs.module
    if inputs.key.size(2) <= rule.first:
        return None
    if compiling and not inputs.is_whole:
        _warn(module, f"{LEFT} under torch.compile: pass disable_compile=True to generate()")
        return None
    if not compiling and module not in _following and takes_any_argument(type(module)):
        _following.add(module)
        module.register_forward_pre_hook(partial(hand_cache, CLUSTERED), with_kwargs=True)
    if inputs.is_whole and inputs.cache is None and inputs.attention_mask is None:
        return _read_whole(inputs, rule)
    try:
        (part,) = read_rules(inputs, rule, {rule: tuple(range(inputs.query.size(1)))})
    except ValueError as error:
        _warn(module, f"{LEFT}: {error}")
        return None
    return part.output if isinstance(part, HeadOutput) else None


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _rule(saved: Any, settings: Mapping[str, Any], causal: bool, device: str) -> tuple[Any, ...]:
    """Return the rule of all heads, as known."""
    given = repr((saved, settings, causal, device))  # which every layer asks for, each time
    if given not in _rules:
        _rules[given] = tuple(_graph(saved, settings).rule(causal, device))
    return _rules[given]


def _graph(saved: Any, settings: Mapping[str, Any]) -> ClusterGraph:
    """Return the settings of all heads: those of a name before those of a configuration."""
    if not isinstance(saved, dict):
        raise ValueError(f"config.clustered must be a dict of settings, got {saved!r}")
    graph = change_graph(ClusterGraph(), {**without_gone(saved), **settings})
    for name, value in vars(graph).items():
        if isinstance(value, tuple):
            wanted = "one number for all heads"
            raise ValueError(f"{name} must be {wanted}, got a table, which attach takes")
    return cast(ClusterGraph, graph)


def _reason(inputs: AttentionInputs, causal: bool, kwargs: Mapping[str, Any]) -> str | None:
    """Return why SDPA is to serve a module, whatever its mask says; refuse what SDPA cannot."""
    module, query, key = inputs.module, inputs.query, inputs.key
    tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    compiling = torch.compiler.is_compiling()
    if in_transform() or (not compiling and (query.is_meta or tracing)):
        return "the values of its tensors cannot be read"
    if not compiling:  # so that who unpickles it knows the name
        module.__dict__.setdefault(MARK, register_clustered)
    if kwargs.get("position_bias") is not None:
        return POSITION_BIAS
    reason = why_left_alone(module)
    if reason in NO_NAME:
        refuse_name(type(module).__name__, module.config, reason)
    if reason is None and (query.size(0) != key.size(0) or not (causal or inputs.is_whole)):
        return ELSEWHERE
    if reason is None and (kwargs.get("sliding_window") or window_of(module)) is not None:
        return WITHIN
    return reason


def _warn(module: nn.Module, what: str) -> None:
    """Warn of a model once a reason; a compiled one when it is traced, and then for all alike."""
    text = f"{type(module).__name__} {what}"
    if torch.compiler.is_compiling():
        _warn_once(0, text, text)
        return
    model: Any = module.config
    reason = re.sub(r"\d+", "", text)  # numbers of tokens differ from call to call
    if _warn_once(id(model), reason, text):
        weakref.finalize(model, _warned.discard, (id(model), reason))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _warn_once(model: int, topic: str, text: str) -> bool:
    new = (model, topic) not in _warned
    if new:
        _warned.add((model, topic))
        warnings.warn(text, stacklevel=4)
    return new


_rules = dict[str, tuple[Any, ...]]()  # by what was given

register_clustered()
for _keys in (8, 16, 32, 64, 128):
    register_clustered(keys=_keys)
