"""How near heads that read by clusters come to the model's own attention, from exact rows."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from jat_graph.core.files import write_text
from jat_graph.core.numbers import check_integer
from jat_graph.core.progress import track_progress
from jat_graph.hf import CapturedLayer, disabled
from jat_graph.hf.by_name import register_clustered
from jat_graph.hf.capture import recording
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.hf.modules import transformer_of
from jat_graph.jumps.config import JatConfig
from jat_graph.looking.inspection.clusters import MEASURES, layer_documents, measure_layer
from jat_graph.looking.inspection.statistics import check_batches
from jat_graph.looking.inspection.tracing import Inputs, cluster_config, keeping_clusters, run_model

DRAWS = 2000  # of sequences, for an interval


@dataclass(frozen=True)
class HeadFidelity:
    """What one head reads, and what is lost by it: means over sampled queries.

    Args:
        layer, head: Which head it is, from 0.
        share: Share of the keys that a query reads exactly.
        mass: Probability that its exact row gives to these keys.
        tv: Total variation, half the sum over all keys of how far the two rows are apart.
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


def _next_tokens(rows: Tensor) -> NextTokens:
    """Return the report of sequences: next tokens, losses of both runs, changed ones, [S, 4]."""
    low = high = None
    if len(rows) > 1:
        chance = torch.Generator().manual_seed(0)
        sums = rows[torch.randint(len(rows), (DRAWS, len(rows)), generator=chance)].sum(1)
        tails = rows.new_tensor((0.025, 0.975))
        low, high = ((sums[:, 2] - sums[:, 1]) / sums[:, 0]).quantile(tails).tolist()
    positions, own, given, changed = rows.sum(0).tolist()
    change = (given - own) / positions
    loss = own / positions
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

    def table(self, *, by_head: bool = False) -> str:
        """Return the numbers as lines of text.

        Args:
            by_head: A line for each head, not for the mean of each layer. (default: False)

        Returns:
            The table, and below it what holds for the whole model.
        """
        rows = defaultdict[str, list[HeadFidelity]](list)
        for own in self.heads:  # in their order, which may be a ranking
            rows[f"{own.layer:>5}" + f"{own.head:>6}" * by_head].append(own)
        rows[" mean" + " " * 6 * by_head] = list(self.heads)
        lines = [f"layer{'  head' * by_head}  share   mass     tv  error"]
        for name, heads in rows.items():
            share, *others = (fmean(getattr(own, part) for own in heads) for part in MEASURES)
            lines.append(f"{name}{share:>7.1%}" + "".join(f"{mean:>7.3f}" for mean in others))
        said = f"Cosine of token states {self.token_cosine:.4f}, of mean embeddings "
        lines += ["", f"{said}{self.embedding_cosine:.4f}."]
        if (told := self.next_tokens) is not None:
            said = f"Loss {told.loss:.3f} per token, by clusters {told.change:+.4f}"
            if told.low is not None:
                said += f" (95 % interval {told.low:+.4f} to {told.high:+.4f})"
            lines.append(f"{said}; {told.changed:.1%} of next tokens change.")
        read = f"{self.sequences} sequences, {self.tokens} tokens; "
        return "\n".join([*lines, f"{read}{self.dense} sequences read densely."])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types."""
        heads = [asdict(head) for head in self.heads]
        return asdict(self) | {"config": self.config.to_dict(), "heads": heads}

    def save(self, path: str | Path) -> None:
        """Write the report as JSON; the file appears whole or not at all.

        Args:
            path: The file.
        """
        write_text(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")


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
        ValueError: If there is no batch, the graph is another, or clusters cannot serve the model.

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
    found: list[Tensor] = []
    with keeping_clusters(model) as change:
        change(config)
        for batch in track_progress(batches, "Comparing", len(batches), transient=True):
            with disabled(model), recording(model, AttachedClusters, tally.add_layer):
                own = _read(model, batch, tally)
            both = zip(own, _read(model, batch, tally), strict=True)
            found += [_compare(*sequences) for sequences in both]
    rows = torch.stack(found)
    length, tokens, whole, positions, *_ = rows.T
    foretold = rows[positions > 0, 3:]
    return Fidelity(
        config,
        tally.heads(),
        token_cosine=float((tokens * length).sum() / length.sum()),
        embedding_cosine=float(whole.mean()),
        sequences=len(rows),
        tokens=int(length.sum()),
        next_tokens=_next_tokens(foretold) if len(foretold) else None,
    )


@dataclass
class Tally:
    """What is found of each sequence in each head."""

    config: JatConfig
    queries: int
    rows: dict[tuple[int, int], list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    documents: list[tuple[int, Tensor]] = field(default_factory=list)  # of the latest batch
    causal: bool = False  # whether these are of a decoder

    def add_layer(self, layer: CapturedLayer) -> None:
        """Measure the heads of one layer on a batch."""
        self.documents = layer_documents(layer)
        self.causal = layer.mask.causal
        given = len(layer.heads), self.causal, layer.query.device.type
        rules = layer.config.cluster_graph.rules(*given)
        found = measure_layer(layer, rules, self.queries, self.config.seed)
        for head, rows in zip(layer.heads, found.unbind(1), strict=True):
            self.rows[layer.layer, head].append(rows)

    def heads(self) -> tuple[HeadFidelity, ...]:
        """Return the means over all tokens of what is known of the heads."""
        found = []
        for (layer, head), rows in sorted(self.rows.items()):
            *measures, _, dense, length = torch.cat(rows).T
            share, mass, tv, error = (float(own @ length / length.sum()) for own in measures)
            found.append(HeadFidelity(layer, head, share, mass, tv, error, int(dense.sum())))
        return tuple(found)


ReadSequence: TypeAlias = tuple[Tensor, Tensor, Tensor]


def _read(model: PreTrainedModel, batch: Inputs, tally: Tally) -> list[ReadSequence]:
    """Run a model, and return what it makes of the sequences whose layers were told last."""
    # Of each the last states [n, C], the losses of the next tokens [n - 1] and the likeliest ones;
    # none of these if it foretells none.
    outputs, _ = run_model(model, batch, states=True)
    inner = transformer_of(model)
    side = "decoder" if tally.causal else "encoder"
    every = outputs.get(f"{side}_hidden_states") or outputs.get("hidden_states")
    if not every:
        name = type(inner).__name__
        raise ValueError(f"model must give hidden_states, got a {name}: pass a part that does")
    states = every[-1]
    ids = batch.get("decoder_input_ids" if inner.config.is_encoder_decoder else "input_ids")
    head = inner.get_output_embeddings()  # type: ignore[no-untyped-call]
    found = []
    for item, tokens in tally.documents:
        losses = states.new_zeros(0)
        likeliest = tokens[:0]
        if tally.causal and head is not None and ids is not None:
            logits = outputs["logits"][item, tokens[:-1]]
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            wanted = ids.to(logits.device)[item, tokens[1:]]
            losses = F.cross_entropy(logits, wanted, reduction="none")
            likeliest = logits.argmax(-1)
        found.append((states[item, tokens].double(), losses, likeliest))
    return found


def _compare(own: ReadSequence, given: ReadSequence) -> Tensor:  # [7], float64
    """Return a sequence's length and cosines, next tokens, losses of both, and how many differ."""
    (states, losses, likeliest), (other_states, other_losses, others) = own, given
    numbers = (
        len(states),
        F.cosine_similarity(states, other_states, dim=-1).mean(),
        F.cosine_similarity(states.mean(0), other_states.mean(0), dim=0),
        len(losses),
        losses.double().sum(),
        other_losses.double().sum(),
        (likeliest != others).sum(),
    )
    return torch.tensor([float(number) for number in numbers], dtype=torch.float64)


def compare_with_sdpa(
    model: Any, ids: Tensor, settings: dict[str, Any], rounds: int
) -> dict[str, float]:
    """Measure a model on SDPA and on clusters in turns, on texts of one length ``[texts, L]``."""
    # Seconds are medians on the first text, the ratio is that of both sides of a round.
    names = ("sdpa", register_clustered(**settings))
    taken = []
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
        "share": fmean(head.share for head in report.heads),
        "token_cosine": report.token_cosine,
        "embedding_cosine": report.embedding_cosine,
    }
