"""Heads of decoders that read by clusters: what earlier tokens left behind stays in the cache."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, EncoderDecoderCache

from jat_graph.attention.heads import HeadGroup, HeadOutput, HeadParts, split_heads
from jat_graph.attention.past import Past
from jat_graph.graph_config import ClusterRule
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.masks.tokens import TokenMask, split_additive

ORDER = (
    "attention_mask must be causal order and padding, or documents, the same for all heads, for "
    "causal cluster heads, got later tokens or biases"
)


def in_causal_order(inputs: AttentionInputs, causal: bool) -> bool:
    """Tell whether tokens see earlier ones only, of a module that is causal or not by itself."""
    mask = inputs.attention_mask
    if not inputs.is_whole or inputs.query.size(2) == 1:
        return causal
    return inputs.is_causal if mask is None else causal and mask.size(-2) > 1


def check_global(inputs: AttentionInputs, causal: bool) -> None:
    """Refuse global tokens in causal order, in which no token sees all."""
    if causal and inputs.everywhere is not None:
        name = type(inputs.module).__name__
        raise ValueError(f"{name} is causal, so that none of its tokens can be global")


def read_rules(
    inputs: AttentionInputs,
    owner: Any,  # whose state the cache keeps
    rules: Mapping[ClusterRule, tuple[int, ...]],  # of all heads
    causal: bool,
) -> HeadParts:
    """Return how heads of each rule read; where all tokens are dense, they are ordinary ones."""
    # Which few sessions need, and which loads the operators.
    from jat_graph.attention.clustered import read_by_clusters
    from jat_graph.attention.clusters import shortest_length

    check_global(inputs, causal)
    past, mask = _past(inputs, owner, rules) if causal else None, None
    if causal:
        mask = inputs.token_mask(past)
        _check_order(inputs, mask)
    if past is not None and mask is not None and mask.pairs is None:
        features = inputs.query, inputs.key, inputs.value
        return past.append(features, replace(mask, causal=True), inputs.scale)
    inputs.check_whole("cluster heads")
    options: dict[str, Any] = {"dropout_p": inputs.dropout, "scale": inputs.scale}
    parts: list[HeadGroup | HeadOutput] = []
    groups = list(rules.values())
    inputs = inputs.repeat_keys() if len(groups) > 1 else inputs
    cut = (split_heads(x, groups) for x in (inputs.query, inputs.key, inputs.value))
    for rule, heads, query, key, value in zip(rules, groups, *cut, strict=True):
        if query.size(2) < shortest_length(rule, causal):
            parts.append(HeadGroup(heads, query, key, value, jumps=False))
        else:
            options |= {"mask": mask or inputs.token_mask(), "causal": causal}
            options |= {"everywhere": inputs.everywhere}
            parts.append(HeadOutput(heads, read_by_clusters(query, key, value, rule, **options)))
    return parts


def _past(
    inputs: AttentionInputs, owner: Any, rules: Mapping[ClusterRule, tuple[int, ...]]
) -> Past | None:
    """Return what earlier tokens left behind; None where nothing of these can be kept."""
    from jat_graph.attention.past_clusters import ClusterPast, ClusterReaders

    features = inputs.query, inputs.key, inputs.value
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in features)
    if recorded or inputs.dropout or torch.compiler.is_compiling():
        inputs.check_whole("cluster heads with gradients, dropout or torch.compile")
        return None
    times = inputs.query.size(1) // inputs.key.size(1)
    readers = tuple(
        ClusterReaders(rule, heads, tuple(head // times for head in heads))
        for rule, heads in rules.items()
    )
    return inputs.past(owner, partial(ClusterPast, readers))


def _check_order(inputs: AttentionInputs, mask: TokenMask) -> None:
    """Refuse a mask that lets tokens see later ones, differs from head to head, or has biases."""
    given, valid, ahead = inputs.attention_mask, mask.valid, False
    if torch.compiler.is_compiling():  # when no branch may depend on values
        if mask.pairs is not None:
            torch._assert_async(~mask.pairs.triu(1).any(), ORDER)
        return
    biased = given is not None and split_additive(given)[1] is not None
    by_head = valid is not None and valid.size(1) > 1
    if not mask.causal and inputs.query.size(2) > 1:
        if mask.pairs is not None:
            ahead = bool(mask.pairs.triu(1).any())
        else:  # no order tells single tokens apart
            ahead = valid is None or int(valid.sum(-1).max()) > 1
    if biased or by_head or ahead:
        raise ValueError(ORDER)


def cache_of(module: nn.Module) -> Cache | None:
    """Return the cache of earlier tokens that a module's forward, which is running, was given."""
    # Nobody hands it on to attention by name, and a hook on the module would miss its first call.
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_locals.get("self") is not module:
        frame = frame.f_back
    found = {} if frame is None else frame.f_locals
    cache = next((x for x in found.values() if isinstance(x, Cache | EncoderDecoderCache)), None)
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
