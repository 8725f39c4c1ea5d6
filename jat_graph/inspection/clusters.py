"""What clusters choose on one text: who joined whom, the keys they name, and what is exact."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.checks.numbers import check_integer
from jat_graph.config import ClusterGraph, JatConfig
from jat_graph.graphs import cluster_graph
from jat_graph.hf import CapturedLayer, attached_config
from jat_graph.hf.jump_layer import ClusterLayer
from jat_graph.inspection.cluster_rows import ClusterRows, cluster_rows, split_sequences
from jat_graph.inspection.selection import EncodedText, Indices, Places, Token
from jat_graph.inspection.tracing import look_at_heads


@dataclass(frozen=True)
class ClusterMember:
    """A token that joined a cluster.

    Args:
        token: The token.
        likeness: Cosine of its row of scores and the cluster's, both less the mean row.
        exact: Share of its attention that goes to keys that it reads exactly.
        tv: How far its attention is from that of exact scores, ½ Σ|p' − p|.
    """

    token: Token
    likeness: float
    exact: float
    tv: float


@dataclass(frozen=True)
class BestKey:
    """A key that a cluster names, and what the cluster scores it, k̄ subtracted."""

    token: Token
    score: float


@dataclass(frozen=True)
class Cluster:
    """A cluster: the tokens that joined it, and the keys that these read exactly.

    Args:
        members: Its tokens that are not hidden as special ones, in the order of the text.
        keys: Its best keys, the highest score first; special ones are named, too.
        hidden_members: Number of tokens that are hidden. (default: 0)
    """

    members: tuple[ClusterMember, ...]
    keys: tuple[BestKey, ...]
    hidden_members: int = 0


@dataclass(frozen=True)
class ClusterReport:
    """One head that reads by clusters, on one text.

    Args:
        layer, head: Which head it is, from 0.
        dense: Whether the text is so short that the head reads it densely after all; everything
            else says what clusters would choose.
        block: Tokens of a block; 0 for no window.
        num_clusters: Clusters that somebody joined.
        median_size: Median number of their tokens.
        density: Share of the pairs that are read exactly.
        exact, tv: Means of those of all tokens.
        clusters: Those that a shown token joined, the largest first.
    """

    layer: int
    head: int
    dense: bool
    block: int
    num_clusters: int
    median_size: float
    density: float
    exact: float
    tv: float
    clusters: tuple[Cluster, ...]

    def of_token(self, index: int) -> tuple[Cluster, ClusterMember]:
        """Return the cluster of a token, and what there is to say of the token.

        Args:
            index: Its position among the model's tokens.

        Returns:
            Both.

        Raises:
            ValueError: If no cluster of the report has it.
        """
        for cluster in self.clusters:
            for member in cluster.members:
                if member.token.index == index:
                    return cluster, member
        raise ValueError(f"index must be that of a token in a reported cluster, got {index!r}")


@dataclass(frozen=True)
class ClusterInspection:
    """What heads that read by clusters choose on one text.

    Args:
        text, tokens: As in :class:`Inspection`.
        config: The settings of the heads.
        heads: One report for each layer and head that was looked at, in order.
    """

    text: str
    tokens: tuple[Token, ...]
    config: JatConfig
    heads: tuple[ClusterReport, ...]

    def ranked(self) -> tuple[ClusterReport, ...]:
        """Return the heads, first those whose attention clusters change most."""
        return tuple(sorted(self.heads, key=lambda head: head.tv, reverse=True))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        tokens = [token.text for token in self.tokens]
        heads = [asdict(head) for head in self.heads]
        config = self.config.to_dict()
        return {"text": self.text, "tokens": tokens, "config": config, "heads": heads}


@dataclass(frozen=True)
class ClusterView:
    """One head that reads by clusters on one text; :func:`jat_graph.viz.draw_clusters` draws it.

    Args:
        report: The head's numbers and clusters.
        tokens: The L tokens shown.
        joined: The cluster of each, ``[L]``; a number from 0 for those of ``report.clusters``.
        near: Which keys lie in the blocks around each token, ``[L, L]``.
        best: Which keys the token's cluster names, ``[L, L]``.
        before, attention: Attention by exact scores, and by clusters, ``[L, L]``.
    """

    report: ClusterReport
    tokens: tuple[Token, ...]
    joined: Tensor
    near: Tensor
    best: Tensor
    before: Tensor
    attention: Tensor


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
    """Report what clusters choose on a text: their tokens, their best keys, and what is exact.

    A text that is shorter than ``dense_below`` is read densely by the model; the report says so,
    and what clusters would choose.

    Args:
        model: A model with heads that read by clusters.
        tokenizer, text, heads: As for :func:`inspect_text`.
        layers: The layers to look at, from 0: one, or several. (default: None, all that have some)
        tokens: The positions whose clusters are reported, as ``range(40, 41)``, or words of the
            text, as ``"pencil"``. (default: None, all)
        top: Number of clusters to report for each head, the largest first. (default: None, all)
        special_tokens: Show special tokens among the members, too. (default: False)

    Returns:
        The report.

    Raises:
        ValueError: If the model has no such heads, or not those asked for, the text is empty, too
            long, or lacks the tokens, or ``top`` is below 0, before the model is run; or if it is a
            decoder.

    Reference:
        "Improved clustered attention" of Vyas, Katharopoulos and Fleuret, *Fast Transformers with
        Clustered Attention*, NeurIPS 2020.
    """
    if top is not None:
        check_integer("top", top, least=0)
    place = layers, heads, tokens, special_tokens
    encoded, found = look_at_heads(model, tokenizer, text, *place, kind=ClusterLayer)
    reports = tuple(ClusterTrace.of(layer).report(encoded, top) for layer in found)
    return ClusterInspection(text, encoded.tokens, attached_config(model, ClusterGraph), reports)


def view_clusters(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    *,
    layer: int,
    head: int,
    tokens: Places = None,
    special_tokens: bool = False,
) -> ClusterView:
    """Return what one head that reads by clusters does on a text, as matrices.

    Args:
        model, tokenizer, text: As for :func:`inspect_clusters`.
        layer, head: Which head it is, from 0.
        tokens: The positions to show, as ``range(40, 90)``, or words. (default: None, all)
        special_tokens: Show special tokens, too. (default: False)

    Returns:
        The matrices over the shown tokens, and the head's report.
    """
    place = layer, head, tokens, special_tokens
    encoded, (seen,) = look_at_heads(model, tokenizer, text, *place, kind=ClusterLayer)
    trace = ClusterTrace.of(seen)
    order = trace.order(encoded)
    joined = [order.index(int(trace.joined[token.index])) for token in encoded.shown]
    shown = (encoded.cut(matrix).cpu() for matrix in trace.rows)
    return ClusterView(trace.report(encoded), encoded.shown, torch.tensor(joined), *shown)


@dataclass(frozen=True)
class ClusterTrace:
    """What one head that reads by clusters did with a text."""

    layer: CapturedLayer  # of this head alone
    graph: HeteroData  # what its clusters choose
    joined: Tensor  # the cluster of each token, [L]
    rows: ClusterRows  # of all tokens, [L, L] each

    @classmethod
    def of(cls, layer: CapturedLayer) -> ClusterTrace:
        """Return what the one head of a layer did, which must not be in causal order."""
        if layer.mask.causal:
            raise ValueError(
                "clusters can be shown for encoders, got a decoder, where each token changes them: "
                "jat_graph.fidelity, or inspect --fidelity, measures what is lost"
            )
        (rule,), (sequence,) = layer.config.cluster_graph.rules(1), split_sequences(layer)
        graph = cluster_graph(layer.query, layer.key, config=layer.config, scale=layer.scale)[0]
        tokens = torch.arange(layer.query.size(2), device=layer.query.device)[None]
        rows = ClusterRows(*(x[0] for x in cluster_rows(sequence, rule, tokens)))
        return cls(layer, graph, graph["joined"].edge_index[1], rows)

    def order(self, encoded: EncodedText) -> list[int]:
        """Return the clusters of shown tokens, the largest first, of equal ones the lower first."""
        sizes = Counter(self.joined.tolist())
        shown = {int(self.joined[token.index]) for token in encoded.shown}
        return sorted(shown, key=lambda cluster: (-sizes[cluster], cluster))

    def report(self, encoded: EncodedText, top: int | None = None) -> ClusterReport:
        """Report the head: its numbers, and the first of the clusters that shown tokens joined."""
        (rule,), length = self.layer.config.cluster_graph.rules(1), len(self.joined)
        exact = self.rows.near | self.rows.best
        shares = (self.rows.given * exact).sum(-1)
        tv = (self.rows.given - self.rows.exact).abs().sum(-1) / 2
        columns = (x.tolist() for x in (self.graph["joined"].likeness, shares, tv))
        members: dict[int, list[ClusterMember]] = {}
        for cluster, *row in zip(self.joined.tolist(), encoded.tokens, *columns, strict=True):
            members.setdefault(cluster, []).append(ClusterMember(*row))
        keys: dict[int, list[BestKey]] = {}
        best = self.graph["best"]
        for (cluster, key), score in zip(
            best.edge_index.T.tolist(), best.score.tolist(), strict=True
        ):
            keys.setdefault(cluster, []).append(BestKey(encoded.tokens[key], score))
        found = []
        for cluster in self.order(encoded)[:top]:
            own = members[cluster]
            named = tuple(member for member in own if member.token.index in encoded.named)
            highest = sorted(keys.get(cluster, []), key=lambda key: -key.score)
            found.append(Cluster(named, tuple(highest), len(own) - len(named)))
        return ClusterReport(
            self.layer.layer,
            self.layer.heads[0],
            length < rule.shortest(),
            rule.block,
            len(members),
            statistics.median(map(len, members.values())),
            float(exact.float().mean()),
            float(shares.mean()),
            float(tv.mean()),
            tuple(found),
        )
