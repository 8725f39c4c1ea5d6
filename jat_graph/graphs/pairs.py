"""Attention and stones as PyG graphs: one graph per sequence and head; and graphs of words."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from jat_graph.core.masks import TokenMask, exclude_tokens, resolve_mask
from jat_graph.core.numbers import check_integer
from jat_graph.core.tensors import check_heads, check_layout, check_scale, clean_padding
from jat_graph.graphs.trees import tree_graph
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import ScoreSource
from jat_graph.jumps.adjacency.stones import StoneIncidence
from jat_graph.jumps.config import JatConfig, check_config
from jat_graph.jumps.external_graphs import ATTRIBUTES, edges_of
from jat_graph.jumps.operators.sparse import Edges, vote_edges

MAP_KINDS = ("scores", "probabilities")


def attention_graph(
    query: Tensor | None = None,
    key: Tensor | None = None,
    *,
    scores: Tensor | None = None,
    kind: str | None = None,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    max_neighbors: int | None = None,
) -> Batch:
    r"""Return the graphs A of every sequence and head as a PyG batch.

    Nodes are the valid tokens in their order. ``edge_index`` has rows (source k, target i), each
    edge the weight A_ik, and there are no self-loops, so that PyG's ``gcn_norm`` gives Â. Soft
    votes join every pair. PyG's ``ToSparseTensor(attr="edge_weight", layout=torch.sparse_csr)``
    makes a matrix of the edges, ``adj_t``, on which layers run fastest; without a layout it is
    torch-sparse's ``SparseTensor``, if that is installed.

    With ``max_neighbors`` = m nothing but O(L · m) edges is held in memory, for hard votes.

    With settings of clusters they are graphs of :func:`jat_graph.tree_graph`.

    Args:
        query: Queries ``[B, H, L, D]``; or give ``scores``. (default: None)
        key: Keys ``[B, H, L, D]``. (default: None)
        scores: A ready-made map ``[B, H, L, L]``, query by key. (default: None)
        kind: What the map holds: scaled ``"scores"``, or ``"probabilities"`` as in a model's
            ``outputs.attentions``; these vote by P_ij · P_kj. (default: None)
        config: The settings, of every head. Probabilities take ρ in [0, 1) or ``vote_rate``.
        attention_mask, is_causal: As for :func:`jat_graph.jump_attention`.
        scale: Factor of the scores of queries and keys. (default: None, which means 1/√D)
        max_neighbors: Keep the heaviest edges into each node, and their reverse where it exists;
            ties go to the lower source. (default: None, which keeps all)

    Returns:
        ``B · H`` graphs of n nodes, sequence by sequence, with ``edge_index`` ``[2, E]``,
        ``edge_weight`` ``[E]``, ``num_nodes``, ``token`` ``[n]`` (each node's position in its row)
        and, in the batch ``[B · H]`` each, ``sequence``, ``head``, and what pruning dropped:
        ``dropped_edges`` and ``dropped_weight``.

    Raises:
        ValueError: If a shape, a value, the mask, the config or the pruning does not fit.

    Reference:
        Eq. 2 and 3 of the JAT paper.

    Example:
        >>> import jat_graph, torch
        >>> query, key = torch.randn(2, 1, 4, 12, 8)  # each [B, H, L, D]
        >>> config = jat_graph.JatConfig(jat_graph.PairGraph(vote_rate=0.05))
        >>> graphs = jat_graph.attention_graph(query, key, config=config)
        >>> graphs.num_graphs, graphs[0].num_nodes
        (4, 12)
        >>> out = jat_graph.nn.JumpConv(8)(query.view(48, 8), graphs.edge_index, graphs.edge_weight)
    """
    check_config(config)
    if config.graph.kind == "clusters":
        others = (scores, kind, max_neighbors)
        if query is None or key is None or any(other is not None for other in others):
            raise ValueError("clusters need query and key, and are not pruned, got other arguments")
        mask: Any = {"attention_mask": attention_mask, "is_causal": is_causal}
        return tree_graph(query, key, config=config, scale=scale, **mask)
    if config.graph.kind != "pairs":
        raise ValueError(f"graph must be 'pairs' here, got {config.graph.kind!r}; use stone_graph")
    if max_neighbors is not None:
        check_integer("max_neighbors", max_neighbors, least=1)
    if scores is not None:
        if query is not None or key is not None or scale is not None:
            raise ValueError("query, key and scale must be None with scores, got one of them")
        pairs = _read_map(scores, kind, config, attention_mask, is_causal)
    elif query is None or key is None:
        raise ValueError("attention_graph needs query and key, or scores; got neither")
    elif kind is not None:
        raise ValueError(f"kind must be None with query and key, got {kind!r}")
    else:
        check_heads(query, key)
        config.jump_graph.thresholds(query.size(1))
        mask = resolve_mask(attention_mask, is_causal, query)
        query, key = clean_padding(mask.valid, query=query, key=key)
        scale = check_scale(scale, query.size(-1))
        pairs = PairAdjacency.of_heads(config, query, key, scale, mask)
    return _split_graphs(vote_edges(pairs, max_neighbors), pairs.source, pairs.mask)


def node_rows(source: ScoreSource, mask: TokenMask) -> Tensor:  # [BH, L]
    """Return which tokens of each graph are its nodes: all but padding."""
    valid = mask.valid
    if valid is None:
        valid = torch.ones(1, 1, 1, dtype=torch.bool, device=source.device)
    return valid.expand(source.shape).flatten(0, 1)


def _read_map(
    scores: Tensor, kind: str | None, config: JatConfig, mask: Tensor | None, is_causal: bool
) -> PairAdjacency:
    if kind not in MAP_KINDS:
        raise ValueError(f"kind must be one of {', '.join(MAP_KINDS)}, got {kind!r}")
    check_layout("scores", scores)
    if scores.size(2) != scores.size(3):
        raise ValueError(f"scores must be [B, H, L, L], got {list(scores.shape)}")
    graph = config.jump_graph
    highest = max(graph.thresholds(scores.size(1)))
    if kind == "probabilities" and highest >= 1 and graph.vote_rate is None:
        wanted = "in [0, 1) for probabilities, or use vote_rate"
        raise ValueError(f"threshold must be {wanted}; got {graph.threshold}")
    token_mask = resolve_mask(mask, is_causal, scores)
    allowed = token_mask.allowed(scores.size(2), scores.device)
    if allowed is not None:
        # A map may hold anything where it is masked, -inf for one.
        scores = scores.masked_fill(~allowed, 0.0)
    (scores,) = clean_padding(None, scores=scores)
    if kind == "probabilities" and bool((scores < 0).any()):
        raise ValueError(f"probabilities must be at least 0, got {float(scores.min()):g}")
    return PairAdjacency.of_map(config, scores, token_mask)


def _split_graphs(edges: Edges, source: ScoreSource, mask: TokenMask) -> Batch:
    """Cut one graph over all sequences and heads into a batch, padding taken out."""
    heads, length = source.shape[1:]
    valid = node_rows(source, mask)
    node = (valid.cumsum(-1) - 1).flatten()[edges.edge_index]
    # Edges come sorted by target, and so by graph: each graph's lie together.
    graph = edges.edge_index[1].div(length, rounding_mode="floor")
    sizes = graph.bincount(minlength=len(valid)).tolist()
    parts = {
        "edge_index": node.split_with_sizes(sizes, dim=1),
        "edge_weight": edges.edge_weight.split_with_sizes(sizes),
        "dropped_edges": edges.dropped_edges.tolist(),
        "dropped_weight": edges.dropped_weight.tolist(),
    }
    return _batch(Data, valid, heads, parts)


def _batch(kind: type[Data], valid: Tensor, heads: int, parts: dict[str, Sequence[Any]]) -> Batch:
    """Return the graphs of all sequences and heads, by which tokens are their nodes, [BH, L]."""
    graphs = []
    for number, own in enumerate(valid):
        graph = kind(num_nodes=int(own.sum()), token=own.nonzero().squeeze(-1))
        graph.update({name: part[number] for name, part in parts.items()})
        graph.sequence, graph.head = divmod(number, heads)
        graphs.append(graph)
    return Batch.from_data_list(graphs)


def token_graph(graph: Data, word_ids: Sequence[int | None]) -> Data:
    r"""Return a graph of words as one of the tokens that a tokenizer cut them into.

    An edge from word u to word v becomes one from each token of u to each of v, and its weight is
    shared among the tokens of u: what reaches a token of v is the mean over u. Tokens of one word
    are not joined, special tokens not at all, and a word that was cut off has no edges, of which a
    warning says so. Each of the new edges has the ``edge_type`` and ``edge_attr`` of the old one.

    Args:
        graph: A graph of n words: ``edge_index`` with rows (source, target), ``edge_weight`` or 1
            each, ``num_nodes`` n; or as transforms leave it, weights in ``edge_attr`` or ``adj_t``.
        word_ids: The word of each token, from 0, or None for special tokens, as
            ``encoding.word_ids(i)`` says; a second text's begin at 0 again, and need an offset.

    Returns:
        ``edge_index`` ``[2, E']``, ``edge_weight`` ``[E']`` and ``num_nodes`` of the tokens,
        ``token`` ``[L]``, their positions, and ``edge_type`` and ``edge_attr`` where the graph has
        them. Beside an ``edge_attr`` that cannot be weights there are none that it does not have.

    Raises:
        ValueError: If a token is of a word that the graph lacks, or weights do not fit the edges.
    """
    found, lost = spread_words(graph, word_ids)
    if lost:
        warnings.warn(
            "graphs have edges of words without a token, which are left out: truncate texts less, "
            "or number the nodes as word_ids does",
            stacklevel=2,
        )
    return found


def spread_words(graph: Data, word_ids: Sequence[int | None]) -> tuple[Data, bool]:
    """Return the graph of the tokens, and whether words without a token have had edges."""
    edges = edges_of(graph, ATTRIBUTES)
    own = getattr(graph, "edge_weight", None)
    listed = isinstance(word_ids, Sequence) and not isinstance(word_ids, str)
    if not listed or not all(w is None or (isinstance(w, int) and w >= 0) for w in word_ids):
        wanted = "the word of each token, from 0, or None"
        raise ValueError(f"word_ids must be {wanted}, got {repr(word_ids).splitlines()[0]:.60}")
    words = [-1 if word is None else word for word in word_ids]
    if max(words, default=-1) >= graph.num_nodes:
        raise ValueError(f"graph must have {max(words) + 1} words or more, got {graph.num_nodes}")
    (source, target), weight, attr = edges.edge_index, edges.edge_weight, edges.edge_attr
    are_weights = attr is None or (attr.size(1) == 1 and bool((attr >= 0).all()))
    if own is None and attr is not None and are_weights:
        weight = attr[:, 0]
    device = weight.device
    word = torch.tensor(words, device=device)
    order = word.argsort(stable=True)  # special tokens first, then word after word
    size = (word + 1).bincount(minlength=graph.num_nodes + 1)
    first = size.cumsum(0)[:-1]
    size = size[1:]  # of each word
    copies = size[source] * size[target]
    edge = torch.arange(len(copies), device=device).repeat_interleave(copies)
    number = torch.arange(len(edge), device=device) - (copies.cumsum(0) - copies)[edge]
    across = size[target][edge]
    from_token = order[first[source][edge] + number.div(across, rounding_mode="floor")]
    to_token = order[first[target][edge] + number % across]
    found = Data(
        edge_index=torch.stack([from_token, to_token]),
        edge_weight=(weight / size[source])[edge],
        num_nodes=len(words),
        token=torch.arange(len(words), device=device),
    )
    for name, value in zip(ATTRIBUTES, edges[2:], strict=True):
        if value is not None:
            found[name] = value[edge]
    if own is None and not are_weights:
        del found["edge_weight"]  # so that heads that can use neither refuse the graph
    return found, not bool(copies.all())


class StoneHypergraph(Data):  # type: ignore[misc]  # PyG is not typed
    """A hypergraph of tokens, its nodes, on stones, its hyperedges; batches number both on."""

    @property
    def num_stones(self) -> int:
        return len(self.stone)

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        if key == "hyperedge_index":
            return torch.tensor([[self.num_nodes], [self.num_stones]])
        return super().__inc__(key, value, *args, **kwargs)


def stone_graph(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    excluded: Tensor | None = None,
) -> Batch:
    r"""Return how the tokens of every sequence and head stand on stones, as a PyG batch.

    Nodes are the valid tokens in their order, hyperedges the stones that somebody stands on, those
    of unusually high scores first. ``hyperedge_index`` has rows (token, stone), each link the
    weight b in ``hyperedge_weight``. Sums over it give P: :math:`s_j = \sum_i b_{ij}`,
    :math:`d_i = \sum_j b_{ij}` and, for two tokens, :math:`P_{ik} = \frac1{d_i + \varepsilon}
    \sum_j b_{ij} b_{kj} / s_j`. A causal graph has the links of all tokens: for token i the sums
    end at i. PyG's ``to_torch_csr_tensor``, or torch-sparse's ``SparseTensor.from_edge_index``,
    makes B of ``hyperedge_index``, ``hyperedge_weight`` and ``(num_nodes, num_stones)``.

    PyG's ``HypergraphConv`` gives P for hard links and ε = 0. It knows no weights of links: leave
    its ``hyperedge_weight``, a number for each hyperedge, alone.

    Args:
        query, key, attention_mask, is_causal, scale: As for :func:`attention_graph`, but that the
            mask is one of padding; no token stands on a later one in causal order.
        config: The settings, with a :class:`jat_graph.StoneGraph`; every head given gets a graph.
        excluded: Tokens that are never stones, bool ``[B, L]``. (default: None)

    Returns:
        ``B · H`` graphs of n nodes and m stones, sequence by sequence, with ``hyperedge_index``
        ``[2, E]``, ``hyperedge_weight`` ``[E]``, ``num_nodes``, ``num_stones``, ``token`` ``[n]``
        and ``stone`` ``[m]`` (positions in the row of each node and each stone's key), ``side``
        ``[m]`` (1 for stones of unusually high scores, -1 for those of unusually low ones), and, in
        the batch ``[B · H]`` each, ``sequence`` and ``head``. Gradients flow through the weights.

    Raises:
        ValueError: If a shape, a value, the mask or the config does not fit.

    Reference:
        Bai, Zhang and Torr, *Hypergraph Convolution and Hypergraph Attention*, 2021. Stones are
        this library's own.

    Example:
        >>> import jat_graph, torch
        >>> query, key = torch.randn(2, 1, 4, 12, 8)  # each [B, H, L, D]
        >>> graphs = jat_graph.stone_graph(query, key, config=jat_graph.JatConfig.stones())
        >>> graphs.num_graphs, graphs[0].num_nodes
        (4, 12)
        >>> layer = jat_graph.nn.StoneConv(8)
        >>> out = layer(query.view(48, 8), graphs.hyperedge_index, graphs.hyperedge_weight)
    """
    check_config(config)
    if config.jump_graph.kind != "stones":
        raise ValueError("graph must be 'stones' here, got 'pairs'; use attention_graph")
    check_heads(query, key)
    scale = check_scale(scale, query.size(-1))
    mask = exclude_tokens(resolve_mask(attention_mask, is_causal, query), excluded, query)
    query, key = clean_padding(mask.valid, query=query, key=key)
    config.jump_graph.thresholds(query.size(1))
    return _split_links(StoneIncidence.of_heads(config, query, key, scale, mask))


def _split_links(incidence: StoneIncidence) -> Batch:
    """Cut the links of all sequences and heads into a batch, padding and empty stones taken out."""
    links = incidence.links().flatten(0, 1)  # [BH, L, m]
    positions, sides = incidence.stones()
    valid = node_rows(incidence.source, incidence.mask)
    used = (links > 0).any(-2)
    graph, row, column = links.nonzero(as_tuple=True)
    token, stone = valid.cumsum(-1) - 1, used.cumsum(-1) - 1
    index = torch.stack([token[graph, row], stone[graph, column]])
    sizes = graph.bincount(minlength=len(links)).tolist()
    parts = {
        "hyperedge_index": index.split_with_sizes(sizes, dim=1),
        "hyperedge_weight": links[graph, row, column].split_with_sizes(sizes),
        "stone": [keys[own] for keys, own in zip(positions.flatten(0, 1), used, strict=True)],
        "side": [sides[own] for own in used],
    }
    return _batch(StoneHypergraph, valid, incidence.source.shape[1], parts)
