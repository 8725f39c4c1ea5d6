"""Jump attention: ordinary attention on queries and keys that were propagated along the graph."""

from __future__ import annotations

from typing import Any, Literal, overload

from torch import Tensor

from jat_graph.clusters.api import read_heads
from jat_graph.core.heads import HeadGroup
from jat_graph.core.masks import TokenMask, exclude_tokens, resolve_mask
from jat_graph.core.tensors import check_dropout, check_heads, check_scale, clean_padding
from jat_graph.jumps.config import ClusterGraph, JatConfig, check_config
from jat_graph.jumps.external_graphs import Graph, read_graph
from jat_graph.jumps.heads import JumpHeads, attend
from jat_graph.jumps.operators import BackendChoice, Operator
from jat_graph.jumps.patterns.backends import attend_within
from jat_graph.jumps.patterns.base import Pattern
from jat_graph.jumps.propagation import graph_operator, head_groups


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
    strength: Tensor | None = None,
    excluded: Tensor | None = None,
    graph: Graph | None = None,
) -> Tensor:
    r"""Return softmax(scale · Σ_p w_p Âᵖ Q Kᵀ (Âᵖ)ᵀ) V, every head jumping.

    With strengths θ, as stones always have them, it is softmax(scale · Q' K'ᵀ) V + Σ_p θᵛ_p Pᵖ V,
    where Q' = Q + Σ_p θ^q_p (Pᵖ Q − Q), and K' likewise. Where all are 0 it is plain attention.

    The shape of :func:`torch.nn.functional.scaled_dot_product_attention`; ``config.heads`` and
    ``config.layers`` are not read here. With ``config.pattern`` the propagated scores are read only
    where the pattern allows it, and a query that may attend to nothing gives zeros. With clusters,
    ``JatConfig.clustered()``, it is :func:`jat_graph.clustered_attention`, and takes none of the
    arguments after ``scale``.

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
        strength: θ of queries, keys and values, ``[3, hops, H]``, where the config says
            ``"learned"``. (default: None)
        excluded: Tokens that are never stones and never vote, bool ``[B, L]``. (default: None; the
            config's ``excluded_token_ids`` are ids, which are not known here)
        graph: A, in the place of the graph that scores make: a PyG ``Batch`` of a graph for each
            sequence, or for each sequence and head, as :func:`jat_graph.attention_graph` gives it;
            ``edge_index`` or ``(edge_index, edge_weight)`` over all tokens, number ``b · L +
            position``; a torch sparse matrix or a ``SparseTensor``, its rows the targets, of L, B ·
            L or B · H · L tokens; self-loops do not count. Or an operator as it is. Nodes of a
            ``Batch`` are the valid tokens, or those that ``token`` names. (default: None)

    Returns:
        The heads' outputs ``[B, H, L, Dv]``, in the dtype of ``value``.

    Raises:
        ValueError: If a shape, a value, the mask or the config does not fit.

    Reference:
        Eq. 7 and 9 of the JAT paper; strengths and stones are this library's own.

    Example:
        >>> import jat_graph, torch
        >>> query, key, value = torch.randn(3, 1, 4, 12, 8)  # each [B, H, L, D]
        >>> config = jat_graph.JatConfig(jat_graph.PairGraph(vote_rate=0.05))
        >>> jat_graph.jump_attention(query, key, value, config=config).shape
        torch.Size([1, 4, 12, 8])
    """
    check_config(config)
    if isinstance(config.graph, ClusterGraph):
        others: dict[str, Any] = {"strength": strength, "excluded": excluded, "graph": graph}
        for name, given in others.items():
            if given is not None:
                got = type(given).__name__
                raise ValueError(f"{name} must not be set with graph='clusters', got a {got}")
    check_heads(query, key, value)
    check_dropout(dropout_p)
    scale = check_scale(scale, query.size(-1))
    mask = exclude_tokens(resolve_mask(attention_mask, is_causal, query), excluded, query)
    query, key, value = clean_padding(mask.valid, query=query, key=key, value=value)
    if scale == 0:  # times -inf it is NaN on the fast path of SDPA
        query, scale = query * 0, 1.0
    if isinstance(config.graph, ClusterGraph):
        rules = config.graph.rules(query.size(1), mask.causal, query.device.type)
        return read_heads(query, key, value, rules, mask=mask, dropout_p=dropout_p, scale=scale)
    jumping = JumpHeads.everyone(config, query.size(1))
    external = None if graph is None else read_graph(graph, query, mask, jumping.heads)
    groups = head_groups(
        query, key, value, jumping, mask=mask, scale=scale, strength=strength, external=external
    )
    return attend_groups(groups, jumping.pattern, mask=mask, dropout_p=dropout_p, scale=scale)


def attend_groups(
    groups: list[HeadGroup],
    pattern: Pattern | None,
    *,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return attention of all heads on their features, under a mask and within a pattern."""
    if pattern is not None:
        return attend_within(pattern, groups, mask=mask, dropout_p=dropout_p, scale=scale)
    query = groups[0].query
    attn_mask, is_causal = mask.attention_mask(query.size(2), query)
    return attend(
        groups, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p, scale=scale
    )


@overload
def jump_operator(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    excluded: Tensor | None = None,
    explain: Literal[False] = False,
) -> Operator: ...
@overload  # of the same options
def jump_operator(
    query: Tensor, key: Tensor, *, config: JatConfig, explain: Literal[True], **options: Any
) -> tuple[Operator, BackendChoice]: ...
def jump_operator(  # type: ignore[misc]
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    excluded: Tensor | None = None,
    explain: bool = False,
) -> Operator | tuple[Operator, BackendChoice]:
    r"""Return Â as an operator, whose ``base`` is A; with stones P, whose ``links`` are B.

    Args:
        query, key, config, attention_mask, is_causal, scale, excluded: As for
            :func:`jump_attention`.
        explain: Also return which backend was chosen and why; :func:`jump_attention` and attached
            models choose alike. (default: False)

    Returns:
        Â = D̃^-½ (A + I) D̃^-½, or P = (D + εI)⁻¹ (B S⁻¹ Bᵀ + εI), and with ``explain`` a
        :class:`jat_graph.operators.BackendChoice`, which prints as one line.

    Raises:
        ValueError: If a shape, a value, the mask, the config or the backend does not fit.

    Shapes:
        - **output:** an operator of shape ``[B, H, L, L]``

    Reference:
        Eq. 2 to 4 of the JAT paper; stones are this library's own.

    Example:
        >>> import jat_graph, torch
        >>> query, key = torch.randn(2, 1, 4, 12, 8)  # each [B, H, L, D]
        >>> config = jat_graph.JatConfig(jat_graph.PairGraph(vote_rate=0.05))
        >>> adj_norm = jat_graph.jump_operator(query, key, config=config)
        >>> x = torch.randn(1, 4, 12, 5)
        >>> torch.allclose(adj_norm.matmul(x), adj_norm.to_dense() @ x, atol=1e-5)
        True
    """
    check_config(config)
    check_heads(query, key)
    scale = check_scale(scale, query.size(-1))
    mask = exclude_tokens(resolve_mask(attention_mask, is_causal, query), excluded, query)
    query, key = clean_padding(mask.valid, query=query, key=key)
    jumping = JumpHeads.everyone(config, query.size(1))
    operator, _, choice = graph_operator(query, key, jumping, mask, scale)
    return (operator, choice) if explain else operator
