"""What heads that read by clusters do with one text: how much is exact, and what tokens find."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.clusters.api import document_tokens
from jat_graph.clusters.attend import choose
from jat_graph.clusters.choice import Nodes, Rule
from jat_graph.clusters.tree import FAN, SINKS, cluster_of_keys
from jat_graph.core.numbers import check_integer
from jat_graph.graphs import tree_graph
from jat_graph.hf import CapturedLayer, attached_config
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.jumps.config import ClusterGraph, JatConfig
from jat_graph.looking.inspection.selection import EncodedText, Indices, Places, Token
from jat_graph.looking.inspection.tracing import look_at_heads

AT_ONCE = 512  # tokens whose rows are held at a time
logger = logging.getLogger(__name__)
READ_EXACTLY = "All of a text this short is read exactly."
READ_DENSELY = "A text this short is read densely (dense_below): this is what clusters would do."


@dataclass(frozen=True)
class ReadKey:
    """A key of a cluster that a token reads exactly, and its share of the token's attention."""

    token: Token
    share: float


@dataclass(frozen=True)
class TokenReading:
    """What one token reads.

    Args:
        token: The token.
        exact: Share of its attention that goes to keys that it reads exactly.
        tv: How far its attention is from that of exact scores, ½ Σ|p' − p|.
        keys: Those of the clusters that it reads, the largest share first; neither the first keys,
            which all tokens read, nor those that are in no cluster yet.
    """

    token: Token
    exact: float
    tv: float
    keys: tuple[ReadKey, ...]


@dataclass(frozen=True)
class ClusterReport:
    """One head that reads by clusters, on one text.

    Args:
        layer, head: Which head it is, from 0.
        dense: Whether so short a text is read densely; all else says what the head would read.
        share: Share of keys that a token reads exactly; like the next a mean over shown tokens.
        exact, tv: As of one token.
        tokens: What each token reads that is shown.
    """

    layer: int
    head: int
    dense: bool
    share: float
    exact: float
    tv: float
    tokens: tuple[TokenReading, ...]


@dataclass(frozen=True)
class ClusterInspection:
    """What heads that read by clusters do with one text.

    Args:
        text, tokens: As in :class:`Inspection`.
        config: The settings of the heads.
        heads: One report for each layer and head that was looked at, in order.
    """

    text: str
    tokens: tuple[Token, ...]
    config: JatConfig
    heads: tuple[ClusterReport, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        tokens = [token.text for token in self.tokens]
        heads = [asdict(head) for head in self.heads]
        config = self.config.to_dict()
        return {"text": self.text, "tokens": tokens, "config": config, "heads": heads}


def inspect_clusters(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    layers: Indices = None,
    heads: Indices = None,
    tokens: Places = None,
    top: int | None = None,
    special_tokens: bool = False,
) -> ClusterInspection:
    """Report what tokens read of a text: how much of it is exact, and which far keys they find.

    A text that is shorter than ``dense_below`` is read densely by the model; the report says so,
    and what tokens would read. One that makes no cluster is read exactly in any case.

    Args:
        model: A model with heads that read by clusters.
        tokenizer, text, layers, heads, special_tokens: As for :func:`inspect_text`.
        tokens: The tokens whose reading is reported, as for it. (default: None, all)
        top: Number of keys to report for each token, those of most attention. (default: None, all)

    Returns:
        The report.

    Raises:
        ValueError: As of :func:`inspect_text`.
    """
    if top is not None:
        check_integer("top", top, least=0)
    place = layers, heads, tokens, special_tokens
    encoded, found = look_at_heads(model, tokenizer, text, *place, kind=AttachedClusters)
    reports = tuple(_report(layer, encoded, top) for layer in found)
    return ClusterInspection(text, encoded.tokens, attached_config(model, ClusterGraph), reports)


def _report(layer: CapturedLayer, encoded: EncodedText, top: int | None) -> ClusterReport:
    (rule,) = layer.config.cluster_graph.rules(1, layer.mask.causal, layer.query.device.type)
    (sequence,) = split_sequences(layer)
    dense = sequence.query.size(1) <= rule.first
    rule = rule._replace(dense_below=0)
    device = sequence.query.device
    readings = list[TokenReading]()
    shares = list[float]()
    for first in range(0, len(encoded.shown), AT_ONCE):
        tokens = encoded.shown[first : first + AT_ONCE]
        places = torch.tensor([token.index for token in tokens], device=device)
        near, best, exact, given = (x[0] for x in cluster_rows(sequence, rule, places[None]))
        is_read = near | best
        met = places + 1 if sequence.causal else exact.size(1)
        shares += (is_read.sum(-1) / met).tolist()
        numbers = torch.stack([(given * is_read).sum(-1), (given - exact).abs().sum(-1) / 2], -1)
        for row, (token, (kept, tv)) in enumerate(zip(tokens, numbers.tolist(), strict=True)):
            keys = best[row].nonzero().squeeze(-1)
            weights, order = given[row, keys].sort(descending=True, stable=True)
            found = zip(keys[order][:top].tolist(), weights[:top].tolist(), strict=True)
            named = tuple(ReadKey(encoded.tokens[key], weight) for key, weight in found)
            readings.append(TokenReading(token, kept, tv, named))
    means = fmean(shares), fmean(own.exact for own in readings), fmean(own.tv for own in readings)
    return ClusterReport(layer.layer, layer.heads[0], dense, *means, tuple(readings))


def view_descent(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    layer: int,
    head: int,
    tokens: Places = None,
    special_tokens: bool = False,
) -> tuple[HeteroData, tuple[str, ...]]:
    """Return how one token descends the tree of a head.

    Args:
        model, tokenizer, text, special_tokens: As for :func:`inspect_clusters`.
        layer, head: Which head to look at, from 0.
        tokens: The token, as ``range(40, 41)``, or a word; of several the last one. (default:
            None, the last of the text)

    Returns:
        What it reads, as of :func:`jat_graph.tree_graph`, in causal order without the tokens behind
        it; and each token of the graph as it stands in the text, with the space before it.
        :func:`jat_graph.viz.draw_descent` takes both.

    Raises:
        ValueError: If the model has no such head, or the text no such token; it is not run then.
    """
    place = layer, head, tokens, special_tokens
    encoded, found = look_at_heads(model, tokenizer, text, *place, kind=AttachedClusters)
    (own,) = found
    index = encoded.shown[-1].index
    causal = own.mask.causal
    (rule,) = own.config.cluster_graph.rules(1, causal, own.query.device.type)
    if own.key.size(2) <= rule.first:
        logger.warning(READ_DENSELY)
    key = own.key[:, :, : index + 1] if causal else own.key
    given: Any = {"config": own.config, "scale": own.scale, "is_causal": causal}
    graph = tree_graph(own.query[:, :, index : index + 1], key, **given)[0]
    for kind in (("token", "read_by"), ("cluster", "read_by"), ("cluster", "opened_by")):
        graph[(*kind, "token")].edge_index[1] = index  # where an only query stood last
    names = list(tokenizer.convert_ids_to_tokens(encoded.inputs["input_ids"][0].tolist()))
    pairs = zip([names[0], *names], names, strict=False)
    said = tokenizer.convert_tokens_to_string
    words = [said([*pair])[len(said([*pair[:1]])) :] for pair in pairs]
    return graph, tuple(words[: key.size(2)])


MEASURES = ("share", "mass", "tv", "error")  # and then the keys that are read, dense, and length
READ, LENGTH = 4, 6


class Sequence(NamedTuple):
    """Heads on one sequence without padding, in the precision of sums."""

    query: Tensor  # [H, n, D]
    key: Tensor  # [H, n, D]
    value: Tensor  # [H, n, Dv]
    scale: float
    causal: bool


def split_sequences(layer: CapturedLayer) -> Iterator[Sequence]:
    """Yield each document of each item of a batch."""
    assert layer.value is not None
    dtype = torch.promote_types(layer.query.dtype, torch.float32)
    for item, tokens in layer_documents(layer):
        parts = layer.query[item], layer.key[item], layer.value[item]
        query, key, value = (x[:, tokens].to(dtype) for x in parts)
        yield Sequence(query, key, value, layer.scale, layer.mask.causal)


def layer_documents(layer: CapturedLayer) -> list[tuple[int, Tensor]]:
    """Return the item and the tokens of each document of a batch, in causal order or not."""
    mask = replace(layer.mask, causal=False)
    return [own for own in document_tokens(mask, layer.query) if len(own[1])]


def measure_layer(
    layer: CapturedLayer,
    rules: Mapping[Rule, tuple[int, ...]],  # of which heads
    queries: int,
    seed: int,
) -> Tensor:  # [sequences, H, 7], on the CPU, float64
    """Return means over sampled queries of each sequence: MEASURES, keys read, dense, length."""
    every = []
    for sequence in split_sequences(layer):
        heads, length, _ = sequence.query.shape
        tokens = torch.arange(length).expand(heads, length)
        if length > queries:  # one out of each of as many equal stretches, in each head its own
            generator = torch.Generator().manual_seed(seed)
            within = torch.rand(heads, queries, generator=generator, dtype=torch.float64)
            starts = torch.arange(queries) + within
            tokens = (starts * (length / queries)).long().clamp(max=length - 1)
        tokens = tokens.to(sequence.query.device)
        met = tokens + 1 if sequence.causal else torch.full_like(tokens, length)
        found = sequence.query.new_tensor((1, 1, 0, 0, 0, 1, length)).repeat(heads, 1)
        found[:, READ] = met.to(found.dtype).mean(1)
        for rule, members in rules.items():
            if length > rule.first:
                own = list(members)
                query, key, value = (x[own] for x in sequence[:3])
                some = sequence._replace(query=query, key=key, value=value)
                found[own, :LENGTH] = _lost(some, rule, tokens[own], met[own])
        every.append(found)
    return torch.stack(every).double().cpu()


def _lost(sequence: Sequence, rule: Rule, tokens: Tensor, met: Tensor) -> Tensor:  # [h, 6]
    """Return the means over some queries of what heads read, and of what is lost by it."""
    near, best, exact, given = cluster_rows(sequence, rule, tokens)
    is_read = near | best
    output = exact @ sequence.value
    lost = (given @ sequence.value - output).norm(dim=-1) / output.norm(dim=-1).clamp(min=1e-30)
    keys = is_read.sum(-1).to(exact.dtype)
    mass = (exact * is_read).sum(-1)
    tv = (given - exact).abs().sum(-1) / 2
    return torch.stack((keys / met, mass, tv, lost, keys, torch.zeros_like(keys)), -1).mean(1)


class ClusterRows(NamedTuple):
    """Rows of some queries over all keys, ``[H, r, n]`` each."""

    near: Tensor  # the first keys, and those that are in no cluster yet, bool
    best: Tensor  # keys that are in clusters read, bool
    exact: Tensor  # attention by exact scores
    given: Tensor  # attention by clusters


def cluster_rows(sequence: Sequence, rule: Rule, tokens: Tensor) -> ClusterRows:  # of [H, r]
    """Return what some queries read along the tree of keys, in memory for r·n numbers a head."""
    key = sequence.key
    rows = tokens.unsqueeze(-1)
    choice = choose(sequence.query, key, rule, sequence.scale)
    nodes = Nodes.of(choice.tree, key, key, rule)
    query = sequence.query.take_along_dim(rows, 1) * sequence.scale
    position = torch.arange(key.size(1), device=key.device)
    met = (position <= rows) | (not sequence.causal)
    scores = (query @ key.mT).masked_fill(~met, -torch.inf)
    cluster = cluster_of_keys(choice.tree).unsqueeze(1)
    seen = choice.seen[rows]
    first = seen.new_tensor([rule.level(n) for n in seen.flatten().tolist()]).view(seen.shape)
    inside = slice(SINKS, SINKS + cluster.size(-1))
    left = cluster < seen  # for which no mean stands yet
    near = met.clone()
    near[..., inside] &= ~left
    given = scores.clone()
    for level, means in reversed([*enumerate(nodes.keys)]):
        chosen = choice.opened[:, :, level - 1] if level else choice.read
        chosen = chosen.take_along_dim(rows, 1).long()
        opened = met.new_zeros(*tokens.shape, means.size(1) + 1)
        opened.scatter_(-1, chosen.where(chosen >= 0, means.size(1)), True)
        node = cluster // FAN**level
        stands = left & (first >= level) & ~opened.take_along_dim(node, -1)
        if rule.rest:
            mean_scores = (query @ means.mT).take_along_dim(node, -1)
            given[..., inside] = mean_scores.where(stands, given[..., inside])
        else:
            given[..., inside] = given[..., inside].masked_fill(stands, -torch.inf)
        left = left & ~stands
    best = torch.zeros_like(near)
    best[..., inside] = left
    return ClusterRows(near, best, scores.softmax(-1), given.softmax(-1))
