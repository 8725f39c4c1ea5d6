"""Clustered attention as a function in the shape of SDPA, and heads of several rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.clusters.attend import read_first
from jat_graph.clusters.choice import BY_TRITON, Rule
from jat_graph.clusters.operator import read_tree
from jat_graph.clusters.settings import NEVER, ClusterGraph
from jat_graph.core.compiling import in_transform
from jat_graph.core.heads import merge_heads, split_heads
from jat_graph.core.masks import TokenMask, resolve_mask, token_documents
from jat_graph.core.numbers import check_flag
from jat_graph.core.tensors import (
    check_dropout,
    check_heads,
    check_scale,
    clean_padding,
    read_global,
)


def clustered_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    attention_mask: Tensor | None = None,
    global_attention_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    dense_below: float | None = None,
    **settings: float | None,
) -> Tensor:
    r"""Return attention along a tree of keys: the best of them exactly, all others by means.

    Near keys form clusters, near clusters groups, and so on; each token descends this tree. With
    E_i the keys that token i reads exactly, and a(i, j) where it stopped above key j, scores are

    .. math::
        s_{ij} = \begin{cases}
            \text{scale} \cdot q_i \cdot k_j & j \in E_i \\
            \text{scale} \cdot q_i \cdot (P_{a(i, j)} K)_j & \text{elsewhere}
        \end{cases}

    where P_a is the mean over the keys of a node, and the output is softmax(s) V. So it can find a
    single key far away that one token alone scores highly. E_i are the first four keys, those of
    the clusters that the token reads, and the few last ones of the sequence that no cluster holds;
    in causal order, in which keys form clusters as soon as a segment of them is complete, the last
    ones before the token. Nothing L×L is stored. Gradients are exact, the choice being constant.
    Short sequences are read by SDPA.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``, or ``[B, Hkv, L, D]`` with ``enable_gqa``.
        value: Values ``[B, H, L, Dv]``, or ``[B, Hkv, L, Dv]``.
        attention_mask: Bool (True = attend) or additive, ``[B, L]`` or ``[B|1, 1, L, L]``; of
            padding, or of documents that see themselves alone, each of which is then a sequence of
            its own. What padding reads is finite and means nothing. (default: None)
        global_attention_mask: Bool, or 0 and 1, ``[B, L]``; not in causal order. A global token
            reads all keys of its sequence exactly, and all of it read its key exactly; the tree is
            that of the other tokens. Padding is never global. (default: None)
        dropout_p: Dropout of the attention probabilities, of those of nodes, too. (default: 0.0)
        is_causal: A token reads what comes before it, and itself. (default: False)
        scale: Factor of the scores. (default: None, which means 1/√D)
        enable_gqa: Keys and values may have fewer heads, each for as many neighbouring heads of
            queries, which share their tree. (default: False)
        dense_below, settings: Fields of :class:`jat_graph.ClusterGraph`, the same for all heads.

    Returns:
        The heads' outputs, in the dtype of ``value``.

    Raises:
        ValueError: If a shape, a value, the mask or a setting does not fit.

    Shapes:
        - **output:** ``[B, H, L, Dv]``

    Reference:
        This library's own; clusters of keys as in Multipole Attention (Hooper et al. 2025), in a
        tree that each token descends. Global tokens are those of Longformer (Beltagy et al. 2020,
        section 3.1), without projections of their own.

    Example:
        >>> import jat_graph, torch
        >>> query, key, value = torch.randn(3, 1, 4, 4096, 64)  # each [B, H, L, D]
        >>> jat_graph.clustered_attention(query, key, value, keys=64).shape
        torch.Size([1, 4, 4096, 64])
    """
    graph = ClusterGraph(dense_below=dense_below, **settings)  # type: ignore[arg-type]
    check_flag("is_causal", is_causal)
    check_heads(query, key, value, check_flag("enable_gqa", enable_gqa))
    check_dropout(dropout_p)
    scale = check_scale(scale, query.size(-1))
    mask = resolve_mask(attention_mask, is_causal, query)
    (rule,) = graph.rules(1, mask.causal, query.device.type)
    valid = mask.valid
    everywhere = read_global(global_attention_mask, query)
    (query,) = clean_padding(valid, query=query)
    if scale <= 0:  # times -inf it is NaN, or inf, on the fast path of SDPA
        query = -query if scale else query * 0
        scale = abs(scale) or 1.0
    shared = valid if valid is None or valid.size(1) == 1 else valid[:, :1]
    key, value = clean_padding(shared, key=key, value=value)
    options: dict[str, Any] = {"dropout_p": dropout_p, "scale": scale, "everywhere": everywhere}
    return read_by_clusters(query, key, value, rule, mask=mask, **options)


def read_by_clusters(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, Hkv, L, D]
    value: Tensor,  # [B, Hkv, L, Dv]
    rule: Rule,
    *,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
    everywhere: Tensor | None = None,  # which tokens are global, bool [B, L]
) -> Tensor:  # [B, H, L, Dv]
    """Return what heads read along their trees, or by SDPA where all sequences are short."""
    if rule.causal and everywhere is not None:
        raise ValueError("global_attention_mask must be None in causal order, got a mask")
    documents = token_documents(mask, query, rule.causal)
    if query.size(2) <= rule.first:
        attn_mask, is_causal = mask.attention_mask(query.size(2), query)
        gqa = key.size(1) != query.size(1)
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=gqa
        )
    return read_long(
        query, key, value, rule, documents, everywhere, dropout_p=dropout_p, scale=scale
    )


def read_long(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, Hkv, L, D]
    value: Tensor,  # [B, Hkv, L, Dv]
    rule: Rule,
    documents: Tensor | None = None,  # of each token, [B, L]; -1 for padding
    everywhere: Tensor | None = None,  # which tokens are global, bool [B, L]
    *,
    dropout_p: float,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return what heads read along their trees, some sequence being long."""
    if in_transform():
        raise ValueError("torch.func does not support clusters; torch.autograd does")
    seed = torch.randint(2**62, ()) if dropout_p > 0 else None
    if torch.is_autocast_enabled(query.device.type):  # which makes one dtype of all for SDPA
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = (x.to(dtype) for x in (query, key, value))
    with torch.autocast(query.device.type, enabled=False):
        given = documents, everywhere, seed, scale, dropout_p, [float(x) for x in rule]
        first = None
        if documents is None and everywhere is None and query.device.type in BY_TRITON:
            first = read_first(query, key, value, rule, scale, dropout_p)
        query = query if first is None else query[:, :, first.size(2) :]
        output: Tensor = read_tree(query, key, value, *given)[0]
    return output if first is None else torch.cat([first, output], dim=2)


def document_tokens(
    mask: TokenMask, query: Tensor, causal: bool = False
) -> Iterator[tuple[int, Tensor]]:
    """Yield the sequence and the tokens of each document; of padding alone, one of no token."""
    found = token_documents(mask, query, causal)
    for sequence, own in enumerate(torch.zeros_like(query[:, 0, :, 0]) if found is None else found):
        for name in torch.unique(own[own >= 0]).tolist() or [0]:
            yield sequence, (own == name).nonzero().squeeze(-1)


def layer_rules(
    graph: ClusterGraph, heads: tuple[int, ...], num_heads: int, causal: bool, device: str
) -> dict[Rule, tuple[int, ...]]:
    """Return the rules of all heads of a layer, ``heads`` of which read by clusters."""
    own = graph.rules(len(heads), causal, device)
    rules = {rule: tuple(heads[index] for index in part) for rule, part in own.items()}
    others = tuple(head for head in range(num_heads) if head not in heads)
    if others:
        dense = Rule(dense_below=NEVER, causal=causal)
        rules[dense] = tuple(sorted((*rules.get(dense, ()), *others)))
    return rules


def read_heads(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    value: Tensor,  # [B, H, L, Dv]
    rules: Mapping[Rule, tuple[int, ...]],  # each with its heads
    *,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return what heads read, those of one rule together."""
    names = list(rules.values())
    cut = (split_heads(x, names) for x in (query, key, value))
    outputs = [
        read_by_clusters(q, k, v, rule, mask=mask, dropout_p=dropout_p, scale=scale)
        for rule, q, k, v in zip(rules, *cut, strict=True)
    ]
    return merge_heads(names, outputs)
