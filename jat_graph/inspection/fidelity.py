"""How near heads that read by clusters come to the model's own attention, from exact rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from jat_graph.checks.numbers import check_integer
from jat_graph.config import ClusterGraph, JatConfig, check_config
from jat_graph.files import read_object, write_text
from jat_graph.graph_config import ClusterRule
from jat_graph.hf import attached_config, disabled
from jat_graph.hf.adapter import attach_again, learned_by_heads
from jat_graph.inspection.cluster_rows import (
    MEASURES,
    is_dense,
    measure_rows,
    sample_tokens,
    split_sequences,
)
from jat_graph.inspection.statistics import check_batches
from jat_graph.inspection.tracing import Inputs, run_model
from jat_graph.masks.documents import token_documents


@dataclass(frozen=True)
class HeadFidelity:
    """What one head reads, and what is lost by it: means over sampled queries.

    Args:
        layer, head: Which head it is, from 0.
        share: Share of the keys that a query reads exactly.
        mass: Probability that its exact row gives to these keys.
        tv: Total variation, half the sum of |p' − p| over all keys; p is the exact row, p' the one
            read.
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
        return asdict(self) | {
            "config": self.config.to_dict(),
            "heads": [asdict(head) for head in self.heads],
        }

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
        """Write the report as JSON; the file appears whole or not at all."""
        write_text(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Fidelity:
        """Read a report that :meth:`save` wrote; a ValueError says why a file is none."""
        return cls.from_dict(read_object(path, "fidelity"))


def _columns(heads: Iterable[HeadFidelity]) -> str:
    heads = list(heads)
    means = [sum(getattr(head, name) for head in heads) / len(heads) for name in MEASURES]
    return f"{means[0]:>7.1%}" + "".join(f"{mean:>7.3f}" for mean in means[1:])
