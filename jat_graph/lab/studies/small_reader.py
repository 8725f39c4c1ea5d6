"""A small model from scratch that answers what is asked of tokens, and how it learns to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch import Tensor

from jat_graph.checks.numbers import check_inside, check_integer
from jat_graph.config import JatConfig
from jat_graph.hf.filters import FilterConfig
from jat_graph.hf.triplets import TripletConfig
from jat_graph.lab.parsing import STRICT
from jat_graph.lab.studies.neighbour_attention import (
    FilterSelfAttention,
    NexusConfig,
    NexusSelfAttention,
    TripletSelfAttention,
)
from jat_graph.nn import JumpSelfAttention
from jat_graph.nn.self_attention import SelfAttention
from jat_graph.training import parameter_groups

ReaderHeads: TypeAlias = JatConfig | FilterConfig | TripletConfig | NexusConfig | None

if TYPE_CHECKING:
    from jat_graph.tasks.recall import IdSequences, RecallTask

HEADS = 4
CHANNELS = 64
_TESTED = 50  # sequences at a time, as soft votes take much memory for each


@dataclass(frozen=True)
class ReaderTraining:
    """How a small model is trained from scratch.

    Args:
        steps: Steps of AdamW without weight decay. (default: 1000)
        every: Steps from one test to the next. (default: 100)
        batch_size: Sequences in a step, drawn anew. (default: 64)
        learning_rate: Of all weights but learned strengths; falls to 0, in equal steps.
            (default: 2e-3)
        strength_lr: Of learned strengths, likewise. (default: 0.1)
    """

    __pydantic_config__ = STRICT

    steps: int = 1000
    every: int = 100
    batch_size: int = 64
    learning_rate: float = 2e-3
    strength_lr: float = 0.1

    def __post_init__(self) -> None:
        for name in ("steps", "every", "batch_size"):
            check_integer(name, getattr(self, name), least=1)
        for name in ("learning_rate", "strength_lr"):
            check_inside(name, getattr(self, name), 0.0, math.inf)


class SmallReader(torch.nn.Module):
    """A transformer of 4 heads without positions: a token is the sum of its ids."""

    def __init__(
        self, task: RecallTask, layers: int, config: ReaderHeads, channels: int = CHANNELS
    ) -> None:
        super().__init__()
        self.names = torch.nn.Embedding(task.num_names + 1, channels, padding_idx=0)
        self.values = torch.nn.Embedding(task.values + 1, channels, padding_idx=0)
        self.layers = torch.nn.ModuleList(_Layer(config, channels) for _ in range(layers))
        self.answer = torch.nn.Sequential(
            torch.nn.LayerNorm(channels), torch.nn.Linear(channels, task.values)
        )
        _draw(self)

    def forward(
        self,
        first: Tensor,  # [B, L]
        second: Tensor,  # [B, L]
        value: Tensor,  # [B, L]
    ) -> Tensor:  # logits of the values from 1 on, [B, L, V]
        """Say of each token which value is the answer."""
        x = self.names(first) + self.names(second) + self.values(value)
        for layer in self.layers:
            x = layer(x, first > 0)
        logits: Tensor = self.answer(x)
        return logits


@torch.no_grad()
def _draw(model: SmallReader) -> None:
    """Draw weights with which two plain layers learn five pairs, some within 1000 steps.

    As torch draws them, 3000 were not enough.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.weight.normal_(std=0.3)[module.padding_idx] = 0.0
        elif isinstance(module, torch.nn.Linear):
            module.weight.normal_(std=0.1)


class _Layer(torch.nn.Module):
    """A layer that normalizes first."""

    def __init__(self, config: ReaderHeads, channels: int) -> None:
        super().__init__()
        self.attention = _attention(config, channels)
        self.norm = torch.nn.LayerNorm(channels)
        self.inner = torch.nn.Sequential(
            torch.nn.LayerNorm(channels),
            torch.nn.Linear(channels, 2 * channels),
            torch.nn.GELU(),
            torch.nn.Linear(2 * channels, channels),
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x), mask)
        out: Tensor = x + self.inner(x)
        return out


def _attention(config: ReaderHeads, channels: int) -> SelfAttention:
    if isinstance(config, FilterConfig):
        return FilterSelfAttention(channels, HEADS, config)
    if isinstance(config, TripletConfig):
        return TripletSelfAttention(channels, HEADS, config)
    if isinstance(config, NexusConfig):
        return NexusSelfAttention(channels, HEADS)
    return JumpSelfAttention(channels, HEADS, config)


def learning_curve(
    task: RecallTask,
    config: ReaderHeads = None,
    *,
    layers: int = 1,
    channels: int = CHANNELS,
    training: ReaderTraining | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train a small model from scratch, and tell how well it does on the way.

    It has 4 heads and no positions, and adds up the embeddings of what a token has.
    Training sequences are drawn anew for each step, of all the task's sizes.

    Args:
        task: What it learns, as :class:`jat_graph.tasks.PartnersTask`.
        config: The settings of all its layers; None for plain heads. (default: None)
        layers: Number of layers. (default: 1)
        channels: Number of features, a multiple of 4. (default: 64)
        training: How long it is trained, and how. (default: None, as they come)
        seed: Of the first weights and the training sequences. (default: 0)
        device: Name of a device. (default: "cpu")

    Yields:
        The number of steps, and what the task's ``measure`` gives on its test split after them.

    Raises:
        ValueError: If the config does not fit.
    """
    training = training or ReaderTraining()
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = SmallReader(task, layers, config, channels).to(device)
    groups = parameter_groups(model, lr=training.learning_rate, strength_lr=training.strength_lr)
    optimizer = torch.optim.AdamW(groups)
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, training.steps)
    source = np.random.default_rng([*b"learning", seed])
    asked = task.sequences("test")
    for step in range(1, training.steps + 1):
        sizes = source.choice(task.sizes, training.batch_size)
        loss = _loss(model, task.draw(sizes, source), device)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        slower.step()
        if step % training.every == 0 or step == training.steps:
            yield step, task.measure(_answers(model, asked, device), asked)


def _loss(model: SmallReader, drawn: IdSequences, device: str) -> Tensor:
    right = torch.from_numpy(drawn.answer).to(device) - 1  # [B, L]; -1 where nothing is asked
    logits = model(*_ids(drawn, device))
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), right.flatten(), ignore_index=-1)


@torch.no_grad()
def _answers(model: SmallReader, asked: IdSequences, device: str) -> np.ndarray:  # [N, L]
    """What a model says of each token."""
    columns = zip(*(torch.split(ids, _TESTED) for ids in _ids(asked, device)), strict=True)
    said = torch.cat([model(*ids).argmax(-1) for ids in columns])
    return (said + 1).cpu().numpy()


def _ids(drawn: IdSequences, device: str) -> list[Tensor]:
    return [torch.from_numpy(ids).to(device) for ids in (drawn.first, drawn.second, drawn.value)]
