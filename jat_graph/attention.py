"""Jump attention: ordinary attention on queries and keys that were propagated along the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.ballot import Ballot, open_ballot
from jat_graph.checks import check_config, check_heads, clean_padding
from jat_graph.config import JatConfig
from jat_graph.config_fields import HopWeights
from jat_graph.masks import TokenMask, resolve_mask
from jat_graph.operators import NormalizedOperator, build_operator
from jat_graph.scores import QueryKeyScores, attention_scores


def jump_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    r"""Return softmax(scale · Σ_p w_p Âᵖ Q Kᵀ (Âᵖ)ᵀ) V, every head jumping.

    The shape of :func:`torch.nn.functional.scaled_dot_product_attention`; ``config.heads`` and
    ``config.layers`` are not read here.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        value: Values ``[B, H, L, Dv]``.
        config: The settings.
        attention_mask: Bool (True = attend) or additive, ``[B, L]`` or ``[B|1, H|1, L, L]``.
            (default: None)
        is_causal: Mask later tokens, too. (default: False)
        dropout_p: Dropout of the attention probabilities. (default: 0.0)
        scale: Factor of the scores. (default: None, which means 1/√D)

    Returns:
        The heads' outputs, in the dtype of ``value``.

    Raises:
        ValueError: If a shape, a value, the mask or the config does not fit.

    Shapes:
        - **output:** ``[B, H, L, Dv]``

    Reference:
        Eq. 7 and 9 of the JAT paper.
    """
    check_config(config)
    check_heads(query, key, value)
    scale = query.size(-1) ** -0.5 if scale is None else scale
    mask = resolve_mask(attention_mask, is_causal, query)
    query, key, value = clean_padding(mask.valid, query=query, key=key, value=value)
    attn_mask, causal = mask.attention_mask(query.size(2), query)
    return attend(
        query,
        key,
        value,
        config=config,
        heads=tuple(range(query.size(1))),
        mask=mask,
        attn_mask=attn_mask,
        is_causal=causal,
        dropout_p=dropout_p,
        scale=scale,
    )


def jump_operator(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> NormalizedOperator:
    r"""Return Â as an operator; A is its ``base``.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        config: The settings.
        attention_mask: Bool (True = attend) or additive, ``[B, L]`` or ``[B|1, H|1, L, L]``.
            (default: None)
        is_causal: Mask later tokens, too. (default: False)
        scale: Factor of the scores. (default: None, which means 1/√D)

    Returns:
        Â = D̃^-½ (A + I) D̃^-½.

    Raises:
        ValueError: If a shape, a value, the mask, the config or the backend does not fit.

    Shapes:
        - **output:** an operator of shape ``[B, H, L, L]``

    Reference:
        Eq. 2 to 4 of the JAT paper.
    """
    check_config(config)
    check_heads(query, key)
    scale = query.size(-1) ** -0.5 if scale is None else scale
    mask = resolve_mask(attention_mask, is_causal, query)
    query, key = clean_padding(mask.valid, query=query, key=key)
    return _operator(query, key, config, mask, scale)[0]


class HeadGroup(NamedTuple):
    """Heads whose scores are the plain product of these features.

    Args:
        heads: Indices from 0.
        query: ``[B, len(heads), L, F]``.
        key: ``[B, len(heads), L, F]``.
    """

    heads: tuple[int, ...]
    query: Tensor
    key: Tensor


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    config: JatConfig,
    heads: tuple[int, ...],
    mask: TokenMask,
    attn_mask: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Return attention of all heads, those in ``heads`` jumping.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        value: Values ``[B, H, L, Dv]``.
        config: The settings over ``heads``, as :meth:`JatConfig.for_layer` gives them.
        heads: The heads that jump.
        mask: The mask for the votes.
        attn_mask: The mask for the final scores, as SDPA takes it.
        is_causal: Whether SDPA shall mask causally.
        dropout_p: Dropout of the attention probabilities.
        scale: Factor of the scores.

    Returns:
        The heads' outputs.

    Raises:
        ValueError: If the mask or the backend does not fit the config.

    Shapes:
        - **output:** ``[B, H, L, Dv]``
    """
    groups = head_groups(query, key, config=config, heads=heads, mask=mask, scale=scale)
    outputs = []
    for group in groups:
        members = slice(None) if len(group.heads) == value.size(1) else list(group.heads)
        outputs.append(
            _wide_attention(
                group.query,
                group.key,
                value[:, members],
                _cut_heads(attn_mask, members),
                is_causal,
                dropout_p,
                scale,
            )
        )
    return _merge_heads([group.heads for group in groups], outputs)


def attention_probabilities(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    heads: tuple[int, ...],
    mask: TokenMask,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """Return the attention probabilities of all heads, those in ``heads`` after propagation.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        config: The settings over ``heads``.
        heads: The heads that jump; none gives ordinary attention.
        mask: The mask for the votes.
        attn_mask: The mask for the final scores, as SDPA takes it.
        is_causal: Whether the final scores are masked causally.
        scale: Factor of the scores.

    Returns:
        Rows that sum to one, or are zero where everything is masked; in the dtype of ``query``.

    Shapes:
        - **output:** ``[B, H, L, L]``
    """
    groups = head_groups(query, key, config=config, heads=heads, mask=mask, scale=scale)
    rows = []
    for group in groups:
        scores = attention_scores(group.query, group.key, scale)
        masks = _cut_heads(attn_mask, list(group.heads))
        rows.append(_masked_softmax(scores, masks, is_causal).to(query.dtype))
    return _merge_heads([group.heads for group in groups], rows)


def head_groups(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    heads: tuple[int, ...],
    mask: TokenMask,
    scale: float,
) -> list[HeadGroup]:
    """Return features whose plain products are the scores, heads of one width together.

    Heads of one hop keep their width and stay with the ordinary ones; every further hop widens.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        config: The settings over ``heads``.
        heads: The heads that jump.
        mask: The mask for the votes.
        scale: Factor of the scores.

    Returns:
        Groups that cover each head once.

    Raises:
        ValueError: If the mask or the backend does not fit the config.
    """
    if not heads:
        return [HeadGroup(tuple(range(query.size(1))), query, key)]
    everyone = len(heads) == query.size(1)
    members = slice(None) if everyone else list(heads)
    jumping = tuple(_jump_features(query[:, members], key[:, members], config, mask, scale, heads))
    ordinary = tuple(head for head in range(query.size(1)) if head not in heads)
    narrow = [group for group in jumping if group.query.size(-1) == query.size(-1)]
    if ordinary:
        rest = list(ordinary)
        narrow.append(HeadGroup(ordinary, query[:, rest], key[:, rest]))
    wide = [group for group in jumping if group.query.size(-1) != query.size(-1)]
    return ([_join(narrow)] if narrow else []) + wide


def _join(groups: list[HeadGroup]) -> HeadGroup:
    """Return one group of heads in rising order."""
    names = [group.heads for group in groups]
    return HeadGroup(
        tuple(sorted(head for group in names for head in group)),
        _merge_heads(names, [group.query for group in groups]),
        _merge_heads(names, [group.key for group in groups]),
    )


def _jump_features(
    query: Tensor,
    key: Tensor,
    config: JatConfig,
    mask: TokenMask,
    scale: float,
    heads: tuple[int, ...],
) -> Iterator[HeadGroup]:
    """Yield the features of jump heads, grouped by their hop weights (Eq. 6 as one product)."""
    groups = config.hop_groups(len(heads))
    highest = max(len(weights) for weights in groups.values()) - 1
    operator, ballot = _operator(query, key, config, mask.select_heads(heads), scale)
    queries, keys = _propagate(operator, query, key, highest)
    nodes = None if config.nodes == "all" else ballot.nodes
    for members, weights in groups.items():
        rows = slice(None) if len(members) == len(heads) else list(members)
        hops = [(q[:, rows], k[:, rows]) for q, k in zip(queries, keys, strict=True)]
        chosen = nodes if nodes is None or nodes.size(1) == 1 else nodes[:, rows]
        combined = _combine(hops, weights, chosen)
        yield HeadGroup(
            tuple(heads[member] for member in members),
            combined[0].to(query.dtype),
            combined[1].to(key.dtype),
        )


def _operator(
    query: Tensor, key: Tensor, config: JatConfig, mask: TokenMask, scale: float
) -> tuple[NormalizedOperator, Ballot]:
    soft = config.soft_temperature is not None
    with torch.set_grad_enabled(soft and torch.is_grad_enabled()):
        # Hard votes are piecewise constant: no gradient flows through them.
        ballot = open_ballot(config, QueryKeyScores(query, key, scale), mask)
        return NormalizedOperator(build_operator(config, ballot, 2 * query.size(-1))), ballot


def _propagate(
    operator: NormalizedOperator, query: Tensor, key: Tensor, highest: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Return ÂᵖQ and ÂᵖK for each hop p, queries and keys multiplied at once."""
    width = query.size(-1)
    features = torch.cat([query.to(operator.dtype), key.to(operator.dtype)], dim=-1)
    queries, keys = [query.to(operator.dtype)], [key.to(operator.dtype)]
    for _ in range(highest):
        features = operator.matmul(features)
        queries.append(features[..., :width])
        keys.append(features[..., width:])
    return queries, keys


def _combine(
    hops: list[tuple[Tensor, Tensor]], weights: HopWeights, nodes: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return features whose plain product is Σ_p w_p Φ_p; between nodes only, if there are some.

    A lone hop of weight 1 is passed on untouched. A negative weight goes on the query side.
    """
    if nodes is not None:
        return _combine_selected(hops, weights, nodes.unsqueeze(-1))
    terms = [(hop, weight) for hop, weight in zip(hops, weights, strict=False) if weight != 0]
    if len(terms) == 1:
        (query, key), weight = terms[0]
        return (query if weight == 1 else query * weight), key
    queries = [query * (weight / abs(weight) ** 0.5) for (query, _), weight in terms]
    keys = [key * abs(weight) ** 0.5 for (_, key), weight in terms]
    return torch.cat(queries, dim=-1), torch.cat(keys, dim=-1)


def _combine_selected(
    hops: list[tuple[Tensor, Tensor]], weights: HopWeights, nodes: Tensor
) -> tuple[Tensor, Tensor]:
    """Return features for Σ_p w_p Φ_p between two nodes, and plain scores everywhere else."""
    inside = nodes.to(hops[0][0].dtype)  # m, [B, H, L, 1]
    query, key = hops[0]
    queries = [(1 - inside) * query, inside * query]
    keys = [key, ((1 - inside) + weights[0] * inside) * key]
    for (far_query, far_key), weight in zip(hops[1:], weights[1:], strict=False):
        if weight != 0:
            queries.append(weight * inside * far_query)
            keys.append(inside * far_key)
    return torch.cat(queries, dim=-1), torch.cat(keys, dim=-1)


def _wide_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Run SDPA; features wider than the values would leave its fast path, so values are padded."""
    width, value_width = query.size(-1), value.size(-1)
    if width > value_width:
        value = F.pad(value, (0, width - value_width))
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale
    )
    return output[..., :value_width]


def _masked_softmax(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
    length = scores.size(-1)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        later = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1).nan_to_num()  # a row without a key: 0/0


def _cut_heads(attn_mask: Tensor | None, members: slice | list[int]) -> Tensor | None:
    if attn_mask is None or attn_mask.size(1) == 1:
        return attn_mask
    return attn_mask[:, members]


def _merge_heads(heads: list[tuple[int, ...]], parts: list[Tensor]) -> Tensor:
    """Put the parts' heads back into rising order, along dimension 1."""
    if len(parts) == 1:
        return parts[0]
    order = [head for group in heads for head in group]
    place = sorted(range(len(order)), key=order.__getitem__)
    return torch.cat(parts, dim=1)[:, place]
