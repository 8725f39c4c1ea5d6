"""How near heads that read by clusters come to the model's own attention, from exact rows."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from jat_graph.adjacency.clusters import best_keys, choose_clusters, number_of_clusters
from jat_graph.attention.clusters import shortest_length
from jat_graph.checks.numbers import check_integer
from jat_graph.config import JatConfig
from jat_graph.files import read_object, write_text
from jat_graph.graph_config import ClusterRule
from jat_graph.hf import CapturedLayer, disabled
from jat_graph.hf.capture import recording
from jat_graph.hf.clustered import register_clustered
from jat_graph.hf.jump_layer import ClusterLayer
from jat_graph.inspection.selection import Indices, choose_heads
from jat_graph.inspection.statistics import check_batches
from jat_graph.inspection.tracing import (
    Inputs,
    change_clusters,
    cluster_config,
    keeping_clusters,
    run_model,
)
from jat_graph.masks.tokens import document_tokens
from jat_graph.progress import track_progress


@dataclass(frozen=True)
class HeadFidelity:
    """What one head reads, and what is lost by it: means over sampled queries.

    Args:
        layer, head: Which head it is, from 0.
        share: Share of the keys that a query reads exactly.
        mass: Probability that its exact row gives to these keys.
        tv: Total variation, half the sum over all keys of how far the row that is read is from the
            exact one.
        error: ‖o' − o‖ / ‖o‖ of its outputs.
        dense: Number of sequences that were read densely, for which nothing is lost.
    """

    layer: int
    head: int
    share: float
    mass: float
    tv: float
    error: float
    dense: int


@dataclass(frozen=True)
class Fidelity:
    """How near heads that read by clusters come to the model's own attention.

    Args:
        config: The settings that were measured.
        heads: One entry for each layer and head, in order; rows are those of the model on its own
            attention, so that no head answers for the layers below it.
        token_cosine: Mean cosine of the last states of a token, by clusters and by the model's own
            attention, over all tokens; here errors of all layers come together.
        embedding_cosine: Mean cosine of the mean of a sequence's last states.
        sequences, tokens: How many of them were read, padding left out.
    """

    config: JatConfig
    heads: tuple[HeadFidelity, ...]
    token_cosine: float
    embedding_cosine: float
    sequences: int
    tokens: int

    @property
    def dense(self) -> int:
        """Number of sequences that every head read densely."""
        return min(head.dense for head in self.heads)

    def of_heads(self, layers: Indices = None, heads: Indices = None) -> Fidelity:
        """Return the report of some heads; the cosines are those of the whole model all the same.

        Args:
            layers: The layers to keep: one, or several. (default: None, all)
            heads: The heads to keep: one, or several. (default: None, all)

        Returns:
            The report.

        Raises:
            ValueError: If there is no such head.
        """
        known: dict[int, tuple[int, ...]] = {}
        for head in self.heads:
            known[head.layer] = (*known.get(head.layer, ()), head.head)
        chosen = choose_heads(known, layers, heads, kind="cluster ")
        kept = tuple(head for head in self.heads if (head.layer, head.head) in chosen)
        return replace(self, heads=kept)

    def table(self, *, by_head: bool = False) -> str:
        """Return the numbers as lines of text.

        Args:
            by_head: A line for each head, not for the mean of each layer. (default: False)

        Returns:
            The table, and below it what holds for the whole model.
        """
        lines = [f"layer{'  head' * by_head}  share   mass     tv  error"]
        for layer in dict.fromkeys(head.layer for head in self.heads):
            own = [head for head in self.heads if head.layer == layer]
            rows = [(f"{head.head:>6}", [head]) for head in own] if by_head else [("", own)]
            lines += [f"{layer:>5}{name}{_columns(some)}" for name, some in rows]
        lines += [f"{'mean':>5}{' ' * 6 * by_head}{_columns(self.heads)}"]
        return "\n".join([*lines, "", self.summary()])

    def summary(self) -> str:
        """Return what holds for the whole model, in two lines."""
        said = f"Cosine of token states {self.token_cosine:.4f}, of mean embeddings "
        read = f"{self.sequences} sequences, {self.tokens} tokens; "
        return f"{said}{self.embedding_cosine:.4f}.\n{read}{self.dense} sequences read densely."

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        heads = [asdict(head) for head in self.heads]
        return asdict(self) | {"config": self.config.to_dict(), "heads": heads}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Fidelity:
        """Return the report that :meth:`to_dict` described.

        Args:
            content: Its fields by name.

        Returns:
            The report.

        Raises:
            ValueError: If a field is missing or unknown.
        """
        try:
            heads = tuple(HeadFidelity(**head) for head in content["heads"])
            config = JatConfig.from_dict(content["config"])
            return cls(**{**content, "config": config, "heads": heads})
        except (KeyError, TypeError) as error:
            raise ValueError(f"fidelity must have its fields, got {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the report as JSON; the file appears whole or not at all.

        Args:
            path: The file.
        """
        write_text(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Fidelity:
        """Read a report that :meth:`save` wrote.

        Args:
            path: The file.

        Returns:
            The report.

        Raises:
            ValueError: If the file holds none.
        """
        return cls.from_dict(read_object(path, "fidelity"))


def _columns(heads: Iterable[HeadFidelity]) -> str:
    heads = list(heads)
    means = [sum(getattr(head, name) for head in heads) / len(heads) for name in MEASURES]
    return f"{means[0]:>7.1%}" + "".join(f"{mean:>7.3f}" for mean in means[1:])


def fidelity(
    model: PreTrainedModel,
    batches: Iterable[Inputs],
    config: JatConfig | None = None,
    *,
    queries: int = 16,
) -> Fidelity:
    r"""Measure how near a model on clusters comes to itself on its own attention.

    For each head the exact rows of some queries, one drawn out of each of as many equal stretches
    of a sequence, are compared with those that clusters give: an estimate without bias, whose cost
    grows with the length as that of clusters does. Nothing is of size L×L. The model reads each
    batch twice: on its own attention, where heads are measured, and by clusters.

    Args:
        model, batches: As for :func:`calibrate`.
        config: The settings, with a :class:`ClusterGraph`. Short sequences are read densely, as
            ``dense_below`` says, and are counted. (default: None, those that the model reads with,
            or else ``JatConfig.clustered()``)
        queries: How many are measured of each head and sequence; a sequence of no more tokens is
            measured whole. (default: 16)

    Returns:
        The report; :func:`jat_graph.viz.draw_fidelity` draws it.

    Raises:
        ValueError: If there is no batch, the graph is another one, or clusters cannot serve the
            model.

    Example:
        >>> import jat_graph, torch
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> batches = [{"input_ids": torch.arange(100, 400).view(1, 300)}]
        >>> config = jat_graph.JatConfig.clustered(keys=8, block=16, dense_below=0)
        >>> report = jat_graph.fidelity(model, batches, config)
        >>> len(report.heads), report.sequences, report.dense
        (48, 1, 0)
        >>> 0.15 < report.heads[0].share < 0.2
        True
    """
    check_integer("queries", queries, least=1)
    batches = check_batches(batches)
    config = cluster_config(model, config)
    tally = Tally(config, queries)
    with keeping_clusters(model):
        change_clusters(model, config)
        for batch in track_progress(batches, "Comparing", len(batches), transient=True):
            with disabled(model), recording(model, ClusterLayer, tally.add_layer):
                own = _last_states(model, batch)
            tally.add_states(own, _last_states(model, batch))
    return tally.report()


def _last_states(model: PreTrainedModel, batch: Inputs) -> Tensor:  # [B, L, C]
    """Return the last states of a model, or of its encoder if it has a decoder, too."""
    outputs, _ = run_model(model, batch, states=True)
    states = outputs.get("encoder_hidden_states") or outputs["hidden_states"]
    return states[-1]  # type: ignore[no-any-return]


class Tally:
    """What is found of each sequence: in each head, and in the states of the whole model."""

    def __init__(self, config: JatConfig, queries: int) -> None:
        self.config, self.queries = config, queries
        # Of each sequence: its tokens, MEASURES, and whether it is read densely.
        self.rows: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
        self.documents: list[tuple[int, Tensor]] = []  # of the latest batch
        self.cosines: list[tuple[int, float, float]] = []  # of a sequence, its tokens first

    def add_layer(self, layer: CapturedLayer) -> None:
        """Measure the heads of one layer on a batch."""
        self.documents = [own for own in document_tokens(layer.mask, layer.query) if len(own[1])]
        rules = layer.config.cluster_graph.rules(len(layer.heads))
        for sequence in split_sequences(layer):
            found = measure_rows(sequence, rules, self.queries, self.config.seed)
            found[:, len(MEASURES)] = sequence.query.size(1)
            for head, row in zip(layer.heads, found.double().cpu(), strict=True):
                self.rows[layer.layer, head].append(row)

    def add_states(self, own: Tensor, given: Tensor) -> None:  # [B, L, C]
        """Compare the last states on a batch."""
        for index in self.documents:
            a, b = (states[index].double() for states in (own, given))
            tokens = float(F.cosine_similarity(a, b, dim=-1).mean())
            whole = float(F.cosine_similarity(a.mean(0), b.mean(0), dim=0))
            self.cosines.append((len(a), tokens, whole))

    def heads(self) -> tuple[HeadFidelity, ...]:
        """Return the means over all tokens of what is known of the heads."""
        found = []
        for (layer, head), rows in sorted(self.rows.items()):
            *measures, length, dense = torch.stack(rows, -1)
            share, mass, tv, error = (float((x @ length) / length.sum()) for x in measures)
            found.append(HeadFidelity(layer, head, share, mass, tv, error, int(dense.sum())))
        return tuple(found)

    def report(self) -> Fidelity:
        """Return everything."""
        lengths, tokens, whole = torch.tensor(self.cosines, dtype=torch.float64).T
        return Fidelity(
            self.config,
            self.heads(),
            token_cosine=float((tokens * lengths).sum() / lengths.sum()),
            embedding_cosine=float(whole.mean()),
            sequences=len(lengths),
            tokens=int(lengths.sum()),
        )


# Numbers that some heads may take up together while their tokens join: 64 MiB in float32.
ROOM = 2**24

MEASURES = ("share", "mass", "tv", "error")


class Sequence(NamedTuple):
    """Heads on one sequence without padding, in the precision of sums."""

    query: Tensor  # [H, n, D]
    key: Tensor  # [H, n, D]
    value: Tensor  # [H, n, Dv]
    scale: float

    def of_heads(self, heads: list[int]) -> Sequence:
        """Return some of the heads."""
        query, key, value = (x[heads] for x in self[:3])
        return Sequence(query, key, value, self.scale)


def split_sequences(layer: CapturedLayer) -> Iterator[Sequence]:
    """Yield each document of each item of a batch."""
    assert layer.value is not None
    dtype = torch.promote_types(layer.query.dtype, torch.float32)
    for item, tokens in document_tokens(layer.mask, layer.query):
        if len(tokens):
            parts = layer.query[item], layer.key[item], layer.value[item]
            query, key, value = (x[:, tokens].to(dtype) for x in parts)
            yield Sequence(query, key, value, layer.scale)


def sample_tokens(length: int, heads: int, number: int, seed: int) -> Tensor:  # [H, r]
    """Draw one token out of each of as many equal stretches, for each head its own."""
    if length <= number:
        return torch.arange(length).expand(heads, length)
    generator = torch.Generator().manual_seed(seed)
    within = torch.rand(heads, number, generator=generator, dtype=torch.float64)
    return ((torch.arange(number) + within) * (length / number)).long().clamp(max=length - 1)


def measure_rows(
    sequence: Sequence,
    rules: Mapping[ClusterRule, tuple[int, ...]],  # of which heads
    queries: int,
    seed: int,
) -> Tensor:  # [H, 6]
    """Return means over sampled queries: MEASURES, keys and clusters read, and if it is dense."""
    heads, length, width = sequence.query.shape
    tokens = sample_tokens(length, heads, queries, seed).to(sequence.query.device)
    found = sequence.query.new_tensor((1.0, 1.0, 0.0, 0.0, length, 1.0)).repeat(heads, 1)
    for rule, members in rules.items():
        if length < shortest_length(rule):
            continue
        step = max(1, ROOM // (length * (width + number_of_clusters(length, rule.clusters))))
        for first in range(0, len(members), step):
            part = list(members[first : first + step])
            found[part] = _measure(sequence.of_heads(part), rule, tokens[part])
    return found


def _measure(sequence: Sequence, rule: ClusterRule, tokens: Tensor) -> Tensor:  # [H, 6]
    near, best, exact, given = cluster_rows(sequence, rule, tokens)
    length, is_read, output = sequence.query.size(1), near | best, exact @ sequence.value
    lost = (given @ sequence.value - output).norm(dim=-1) / output.norm(dim=-1).clamp(min=1e-30)
    share = is_read.to(exact.dtype).mean(-1)
    mass, tv = (exact * is_read).sum(-1), (given - exact).abs().sum(-1) / 2
    keys = share * length + number_of_clusters(length, rule.clusters)
    return torch.stack([share, mass, tv, lost, keys, torch.zeros_like(share)], -1).mean(1)


class ClusterRows(NamedTuple):
    """Rows of some queries over all keys, ``[H, r, n]`` each."""

    near: Tensor  # keys in the blocks around, bool
    best: Tensor  # keys that their cluster names, bool
    exact: Tensor  # attention by exact scores
    given: Tensor  # attention by clusters


def cluster_rows(
    sequence: Sequence,
    rule: ClusterRule,
    tokens: Tensor,  # [H, r]
) -> ClusterRows:
    """Return what some queries read, in memory for r·n numbers a head."""
    query, key, _, scale = sequence
    key = key - key.mean(1, keepdim=True)  # softmax does not see it
    joined, centres = choose_clusters(query, key, rule.clusters, rule.refine)
    chosen = (query, tokens), (centres, joined.gather(1, tokens))
    queries, towards = (x.take_along_dim(i.unsqueeze(-1), 1) * scale for x, i in chosen)
    scores, rows = queries @ key.mT, towards @ key.mT
    best = torch.zeros_like(rows, dtype=torch.bool)
    best.scatter_(-1, best_keys(towards, key, min(rule.keys, key.size(1)))[0], True)
    block = torch.arange(key.size(1), device=key.device) // max(rule.block, 1)
    near = ((block[tokens].unsqueeze(-1) - block).abs() <= 1) & (rule.block > 0)
    rest = rows if rule.propagate else torch.full_like(rows, -torch.inf)
    given = torch.where(near | best, scores, rest)
    return ClusterRows(near, best, scores.softmax(-1), given.softmax(-1))


def compare_with_sdpa(
    model: Any, ids: Tensor, settings: dict[str, Any], rounds: int
) -> dict[str, float]:
    """Measure a model on SDPA and on clusters in turns, on texts of one length ``[texts, L]``."""
    # Seconds are medians on the first text, the ratio is that of both sides of a round.
    names, taken = ("sdpa", register_clustered(**settings)), []
    for _ in range(rounds + 1):
        seconds = []
        for name in names:
            model.set_attn_implementation(name)
            start = time.perf_counter()
            with torch.inference_mode():
                model(ids[:1])
            seconds.append(time.perf_counter() - start)
        taken.append(seconds)
    taken = taken[1:]  # the first may compile
    report = fidelity(model, [{"input_ids": text[None]} for text in ids])
    return {
        "tokens": ids.size(1),
        "sdpa": median(sdpa for sdpa, _ in taken),
        "clusters": median(clusters for _, clusters in taken),
        "ratio": median(clusters / sdpa for sdpa, clusters in taken),
        "share": sum(head.share for head in report.heads) / len(report.heads),
        "token_cosine": report.token_cosine,
        "embedding_cosine": report.embedding_cosine,
    }
