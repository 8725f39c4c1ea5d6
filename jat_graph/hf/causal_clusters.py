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

from jat_graph.attention.heads import HeadGroup, HeadOutput, HeadParts
from jat_graph.graph_config import ClusterRule
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.masks.tokens import TokenMask, split_additive


def in_causal_order(inputs: AttentionInputs, causal: bool) -> bool:
    """Tell whether tokens see earlier ones only, of a module that is causal or not by itself."""
    mask = inputs.attention_mask
    if not inputs.is_whole or inputs.query.size(2) == 1:
        return causal
    return inputs.is_causal if mask is None else causal and mask.size(-2) > 1


def read_in_order(
    inputs: AttentionInputs,
    owner: Any,  # whose state the cache keeps
    rules: Mapping[ClusterRule, tuple[int, ...]],  # of all heads
) -> HeadParts:
    """Return how heads of each rule read in causal order; dense ones are ordinary ones."""
    # Which few sessions need, and which loads the operators.
    from jat_graph.attention.causal_state import dense_tokens
    from jat_graph.attention.clustered import read_by_clusters
    from jat_graph.attention.past_clusters import ClusterPast, ClusterReaders

    features = query, key, value = inputs.query, inputs.key, inputs.value
    groups = query.size(1) // key.size(1)
    readers = tuple(
        ClusterReaders(rule, heads, tuple(head // groups for head in heads))
        for rule, heads in rules.items()
    )
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in features)
    if recorded and not inputs.is_whole:
        raise ValueError(
            "cluster heads follow a cache without gradients only: use torch.no_grad(), or pass "
            "use_cache=False"
        )
    past = None
    if not recorded and not inputs.dropout and not torch.compiler.is_compiling():
        past = inputs.past(owner, partial(ClusterPast, readers))
    mask = _order(inputs, inputs.token_mask(past))
    if past is not None:
        return past.append(features, mask, inputs.scale)
    inputs.check_whole("cluster heads that record gradients, or drop out,")
    parts: list[HeadGroup | HeadOutput] = []
    options: dict[str, Any] = {"mask": mask, "dropout_p": inputs.dropout, "scale": inputs.scale}
    for own in readers:
        group = own.densely(features)
        if query.size(2) > dense_tokens(own.rule):
            output = read_by_clusters(*group[1:4], own.rule, **options)
            parts.append(HeadOutput(own.heads, output))
        else:
            parts.append(group)
    return parts


def _order(inputs: AttentionInputs, mask: TokenMask) -> TokenMask:
    """Return a mask of causal order and padding; one that says more is refused."""
    given, valid = inputs.attention_mask, mask.valid
    biased = given is not None and split_additive(given)[1] is not None
    by_head = valid is not None and valid.size(1) > 1
    follows = mask.causal or inputs.query.size(2) == 1
    if not follows and valid is not None:
        follows = int(valid.sum(-1).max()) <= 1  # single tokens, which no order tells apart
    if mask.pairs is not None or biased or by_head or not follows:
        raise ValueError(
            "attention_mask must be causal order and padding where cluster heads are causal, "
            "the same for all heads, got another rule, or biases"
        )
    return replace(mask, causal=True)


def cache_of(module: nn.Module) -> Cache | None:
    """Return the cache of earlier tokens that a module's forward, which is running, was given."""
    # Nobody hands it on to attention by name, and a hook on the module would miss its first call.
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_locals.get("self") is not module:
        frame = frame.f_back
    found = {} if frame is None else frame.f_locals
    cache = next((x for x in found.values() if isinstance(x, Cache | EncoderDecoderCache)), None)
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
