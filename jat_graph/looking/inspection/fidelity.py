"""How near heads that read by clusters come to the model's own attention, from exact rows."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from jat_graph.core.files import read_object, write_text
from jat_graph.core.numbers import check_integer
from jat_graph.core.progress import track_progress
from jat_graph.hf import CapturedLayer, disabled
from jat_graph.hf.by_name import register_clustered
from jat_graph.hf.capture import recording
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.hf.modules import transformer_of
from jat_graph.jumps.config import JatConfig
from jat_graph.looking.inspection.cluster_rows import (
    MEASURES,
    layer_documents,
    measure_rows,
    split_sequences,
)
from jat_graph.looking.inspection.selection import Indices, choose_heads
from jat_graph.looking.inspection.statistics import check_batches
from jat_graph.looking.inspection.tracing import (
    Inputs,
    change_clusters,
    cluster_config,
    keeping_clusters,
    run_model,
)

DRAWS = 2000  # of sequences, for an interval


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
class NextTokens:
    """What clusters change in what a decoder says of the next token.

    Args:
        positions: Number of tokens whose next one was foretold.
        loss: Mean loss of these on the model's own attention, in nats.
        change: How much more it is by clusters.
        low, high: Ends of the 95 % interval of the change, whole sequences being drawn anew (Efron
            and Tibshirani 1993, chapter 13); None for a single one.
        changed: Share of the positions whose most likely next token is another one.
    """

    positions: int
    loss: float
    change: float
    low: float | None
    high: float | None
    changed: float

    def summary(self) -> str:
        """Return the numbers in a line."""
        said = f"Loss {self.loss:.3f} per token, by clusters {self.change:+.4f}"
        if self.low is not None:
            said += f" (95 % interval {self.low:+.4f} to {self.high:+.4f})"
        return f"{said}; {self.changed:.1%} of next tokens change."


def _next_tokens(rows: Tensor) -> NextTokens:
    """Return the report of some sequences, a row of Tally.next_tokens each, [S, 4]."""
    low = high = None
    if len(rows) > 1:
        chance = torch.Generator().manual_seed(0)
        sums = rows[torch.randint(len(rows), (DRAWS, len(rows)), generator=chance)].sum(1)
        tails = rows.new_tensor((0.025, 0.975))
        low, high = ((sums[:, 2] - sums[:, 1]) / sums[:, 0]).quantile(tails).tolist()
    positions, own, given, changed = rows.sum(0).tolist()
    change, loss = (given - own) / positions, own / positions
    return NextTokens(int(positions), loss, change, low, high, changed / positions)


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
        next_tokens: What it changes in what a decoder says of the next token. (default: None, the
            model is no decoder with a head for that)
    """

    config: JatConfig
    heads: tuple[HeadFidelity, ...]
    token_cosine: float
    embedding_cosine: float
    sequences: int
    tokens: int
    next_tokens: NextTokens | None = None

    @property
    def dense(self) -> int:
        """Number of sequences that every head read densely."""
        return min(head.dense for head in self.heads)

    def ranked(self) -> tuple[HeadFidelity, ...]:
        """Return the heads, first those whose output is furthest from that of exact attention."""
        return tuple(sorted(self.heads, key=lambda head: head.error, reverse=True))

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
        if by_head:  # in their order, which may be a ranking
            lines += [f"{own.layer:>5}{own.head:>6}{_columns([own])}" for own in self.heads]
        else:
            for layer in dict.fromkeys(head.layer for head in self.heads):
                own = [head for head in self.heads if head.layer == layer]
                lines.append(f"{layer:>5}{_columns(own)}")
        lines += [f"{'mean':>5}{' ' * 6 * by_head}{_columns(self.heads)}"]
        return "\n".join([*lines, "", self.summary()])

    def summary(self) -> str:
        """Return what holds for the whole model, in two lines, or three of a decoder."""
        said = f"Cosine of token states {self.token_cosine:.4f}, of mean embeddings "
        read = f"{self.sequences} sequences, {self.tokens} tokens; "
        lines = [f"{said}{self.embedding_cosine:.4f}."]
        lines += [] if self.next_tokens is None else [self.next_tokens.summary()]
        return "\n".join([*lines, f"{read}{self.dense} sequences read densely."])

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
            given = {"heads": heads, "config": JatConfig.from_dict(content["config"])}
            if content.get("next_tokens"):
                given["next_tokens"] = NextTokens(**content["next_tokens"])
            return cls(**{**content, **given})
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


def _columns(heads: Sequence[HeadFidelity]) -> str:
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
    batch twice: on its own attention, where heads are measured, and by clusters. In causal order a
    query's keys are those up to its own; of a decoder that foretells tokens the change of its loss
    is told, too.

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
        >>> config = jat_graph.JatConfig.clustered(keys=16, dense_below=0)
        >>> report = jat_graph.fidelity(model, batches, config)
        >>> len(report.heads), report.sequences, report.dense
        (48, 1, 0)
        >>> round(report.heads[0].share, 2)
        0.07
    """
    check_integer("queries", queries, least=1)
    batches = check_batches(batches)
    config = cluster_config(model, config)
    tally = Tally(config, queries)
    with keeping_clusters(model):
        change_clusters(model, config)
        for batch in track_progress(batches, "Comparing", len(batches), transient=True):
            with disabled(model), recording(model, AttachedClusters, tally.add_layer):
                own = tally.read(model, batch)
            tally.compare(own, tally.read(model, batch))
    return tally.report()


class ReadSequence(NamedTuple):
    """What a model makes of one sequence."""

    states: Tensor  # the last, [n, C]
    losses: Tensor  # of the next tokens, [n - 1]; none if it foretells none
    likeliest: Tensor  # of the next tokens, as many


class Tally:
    """What is found of each sequence: in each head, and in what the whole model says."""

    def __init__(self, config: JatConfig, queries: int) -> None:
        self.config, self.queries = config, queries
        # Of each sequence: its tokens, MEASURES, and whether it is read densely.
        self.rows: dict[tuple[int, int], list[Tensor]] = defaultdict(list)
        self.documents: list[tuple[int, Tensor]] = []  # of the latest batch
        self.causal = False  # whether these are of a decoder
        self.cosines: list[tuple[int, float, float]] = []  # of a sequence, its tokens first
        # Of a sequence: tokens with a next one, losses of both runs, and how many are others.
        self.next_tokens: list[Tensor] = []

    def add_layer(self, layer: CapturedLayer) -> None:
        """Measure the heads of one layer on a batch."""
        self.documents, self.causal = layer_documents(layer), layer.mask.causal
        rules = layer.config.cluster_graph.rules(len(layer.heads), self.causal)
        for sequence in split_sequences(layer):
            found = measure_rows(sequence, rules, self.queries, self.config.seed)
            found[:, len(MEASURES)] = sequence.query.size(1)
            for head, row in zip(layer.heads, found.double().cpu(), strict=True):
                self.rows[layer.layer, head].append(row)

    def read(self, model: PreTrainedModel, batch: Inputs) -> list[ReadSequence]:
        """Run a model, and return what it makes of the sequences whose layers it showed last."""
        outputs, _ = run_model(model, batch, states=True)
        inner = transformer_of(model)
        side = "decoder" if self.causal else "encoder"
        states = (outputs.get(f"{side}_hidden_states") or outputs["hidden_states"])[-1]
        ids = batch.get("decoder_input_ids" if inner.config.is_encoder_decoder else "input_ids")
        head = inner.get_output_embeddings()  # type: ignore[no-untyped-call]
        found = []
        for item, tokens in self.documents:
            losses, likeliest = states.new_zeros(0), tokens[:0]
            if self.causal and head is not None and ids is not None:
                logits = outputs["logits"][item, tokens[:-1]]
                logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
                wanted = ids.to(logits.device)[item, tokens[1:]]
                losses = F.cross_entropy(logits, wanted, reduction="none")
                likeliest = logits.argmax(-1)
            found.append(ReadSequence(states[item, tokens].double(), losses, likeliest))
        return found

    def compare(self, own: list[ReadSequence], given: list[ReadSequence]) -> None:
        """Compare what the model makes of a batch on its own attention and by clusters."""
        for a, b in zip(own, given, strict=True):
            tokens = float(F.cosine_similarity(a.states, b.states, dim=-1).mean())
            whole = float(F.cosine_similarity(a.states.mean(0), b.states.mean(0), dim=0))
            self.cosines.append((len(a.states), tokens, whole))
            if len(a.losses):
                sums = (x.double().sum() for x in (a.losses, b.losses, a.likeliest != b.likeliest))
                self.next_tokens.append(torch.tensor([len(a.losses), *sums], dtype=torch.float64))

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
            next_tokens=_next_tokens(torch.stack(self.next_tokens)) if self.next_tokens else None,
        )


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
