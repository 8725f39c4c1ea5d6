"""Sweeps of the kinds ``partners`` and ``far-recall``: small models from scratch recall values.

A task names the number of layers and the sequences, as ``"1 layer, 5 pairs"`` or ``"2 layers, 48
filler"``, and the number of features if it is not 64, as ``"1 layer, 5 pairs, 128 features"``. The
table ``[study]`` has the fields of :class:`Training`. Beside jump heads layers may have triplet
heads, GFSA or Nexus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from examples import questions
from examples.sweeps.definition import Run, validate
from examples.sweeps.heads import build_heads
from examples.tasks.recall import FarRecallTask, IdSequences, PartnersTask, RecallTask
from jat_graph import JatConfig
from jat_graph.nn import JumpSelfAttention
from models.triplet_attention import TripletAttention

Kin: TypeAlias = Literal["triplet", "gfsa", "nexus"]
Heads: TypeAlias = JatConfig | Kin | None

HEADS, CHANNELS = 4, 64
_TESTED = 50  # sequences at a time, as soft votes take much memory for each


class Training(BaseModel):
    """How a small model is trained on fresh sequences; both learning rates fall to 0."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(default=1000, ge=1)
    every: int = Field(default=100, ge=1)
    batch_size: int = Field(default=64, ge=1)
    learning_rate: float = Field(default=2e-3, gt=0)
    strength_learning_rate: float = Field(default=0.1, gt=0)


def check(run: Run) -> None:
    """Refuse a model, options, and what a small model's layers cannot have."""
    run.refuse_model()
    variant = run.variant
    if run.sweep.options or variant.options or variant.tune or variant.density:
        raise ValueError(f"variants of {run.sweep.name} must differ in their heads alone")
    task, _, channels, heads, _ = read_setting(run)
    SmallReader(task, 1, heads, channels)


def read_setting(run: Run) -> tuple[RecallTask, int, int, Heads, Training]:
    """Return what a run trains: on which sequences, how deep and wide, with which heads, how."""
    unit = {"partners": "pairs", "far-recall": "filler"}[run.sweep.kind]
    pattern = rf"([1-9]\d?) layers?, ([1-9]\d*) {unit}(?:, ([1-9]\d*) features)?"
    found = re.fullmatch(pattern, run.task)
    if found is None:
        raise ValueError(f"task must be as '1 layer, 5 {unit}', got {run.task!r}")
    layers, size, channels = found.groups(CHANNELS)
    task = PartnersTask(pairs=int(size)) if unit == "pairs" else FarRecallTask(filler=int(size))
    variant = run.variant
    heads: Heads
    if variant.heads in ("triplet", "gfsa", "nexus") and not variant.settings:
        heads = variant.heads
    else:
        heads = next(iter(build_heads(variant, layers=1, heads=HEADS)), None)
    training = validate(Training, run.sweep.study, "[study]")
    return task, int(layers), int(channels), heads, training


def run(run: Run) -> dict[str, Any]:
    """Train and test a model; return its record, with the scores of each test on the way."""
    task, layers, channels, heads, training = read_setting(run)
    device = (torch.accelerator.current_accelerator() or torch.device("cpu")).type
    sizes: dict[str, Any] = {"layers": layers, "channels": channels, "seed": run.seed}
    curve = dict(learning_curve(task, heads, training=training, device=device, **sizes))
    steps = {f"step {step}": scores for step, scores in curve.items()}
    return {"scores": {"test": curve[training.steps]} | steps, "device": device}


class SmallReader(nn.Module):
    """A transformer of 4 heads without positions: a token is the sum of its ids' embeddings."""

    def __init__(
        self, task: RecallTask, layers: int, heads: Heads = None, channels: int = CHANNELS
    ) -> None:
        super().__init__()
        self.names = nn.Embedding(task.num_names + 1, channels, padding_idx=0)
        self.values = nn.Embedding(task.values + 1, channels, padding_idx=0)
        self.layers = nn.ModuleList(_Layer(heads, channels) for _ in range(layers))
        self.answer = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, task.values))
        with torch.no_grad():  # as torch draws them, 3000 steps teach two plain layers nothing
            for module in self.modules():
                if isinstance(module, nn.Embedding):
                    module.weight.normal_(std=0.3)[module.padding_idx] = 0.0
                elif isinstance(module, nn.Linear):
                    module.weight.normal_(std=0.1)

    def forward(self, first: Tensor, second: Tensor, value: Tensor) -> Tensor:
        """Return logits of the values from 1 on, ``[B, L, V]``, of ids ``[B, L]``."""
        x = self.names(first) + self.names(second) + self.values(value)
        for layer in self.layers:
            x = layer(x, first > 0)
        return self.answer(x)


class _Layer(nn.Module):
    """A layer that normalizes first."""

    def __init__(self, heads: Heads, channels: int) -> None:
        super().__init__()
        self.attention: nn.Module
        if heads == "triplet":
            self.attention = TripletHeads(channels)
        elif isinstance(heads, str):
            self.attention = NeighbourHeads(channels, heads)
        else:
            self.attention = JumpSelfAttention(channels, HEADS, heads)
        self.norm = nn.LayerNorm(channels)
        up, down = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)
        self.inner = nn.Sequential(nn.LayerNorm(channels), up, nn.GELU(), down)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x), mask)
        return x + self.inner(x)


class TripletHeads(nn.Module):
    """Three triplet heads beside a plain one: both kinds read and write the layer's features."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        width = channels // HEADS
        self.triplets = TripletAttention(channels, HEADS - 1, head_channels=width)
        self.plain = JumpSelfAttention(channels, 1, None, head_channels=width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return features ``[B, N, C]``; those of masked tokens are not read."""
        return self.triplets(x, mask) + self.plain(x, mask)


class NeighbourHeads(nn.Module):
    """GFSA, whose values walk on, or Nexus, whose queries and keys are outputs of attention.

    GFSA multiplies values by w₀ I + w₁ P + w₃ [P + 2 (P² − P)] for probabilities P, and learns
    w₀, w₁ − 1 and w₃ of each head from 0; the bracket stands for P to the power of 3.

    Reference:
        Choi et al., *Graph Convolutions Enrich the Self-Attention in Transformers!*, NeurIPS 2024;
        Chen et al., *Nexus: Higher-Order Attention Mechanisms in Transformers*, 2025.
    """

    def __init__(self, channels: int, kind: Kin) -> None:
        super().__init__()
        self.query, self.key, self.value = (
            nn.Linear(channels, channels, bias=False) for _ in range(3)
        )
        self.out = nn.Linear(channels, channels)
        self.theta = nn.Parameter(torch.zeros(3, HEADS)) if kind == "gfsa" else None

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return features ``[B, N, C]``; those of masked tokens are not read."""
        attend = partial(F.scaled_dot_product_attention, attn_mask=mask[:, None, None])
        query, key, value = self._project(x)
        if self.theta is None:
            query, key = (
                attend(*self._project(heads.transpose(1, 2).flatten(2))) for heads in (query, key)
            )
            read = attend(query, key, value)
        else:
            once = attend(query, key, value)
            itself, near, high = self.theta[:, :, None, None]
            far = once + 2 * (attend(query, key, once) - once)
            read = once + near * once + itself * value + high * far
        return self.out(read.transpose(1, 2).flatten(2))

    def _project(self, x: Tensor) -> list[Tensor]:  # [B, N, C] to three of [B, H, N, D]
        parts = (self.query(x), self.key(x), self.value(x))
        return [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts]


def learning_curve(
    task: RecallTask,
    heads: Heads = None,
    *,
    layers: int = 1,
    channels: int = CHANNELS,
    training: Training,
    seed: int = 0,
    device: str = "cpu",
) -> Iterator[tuple[int, dict[str, float]]]:
    """Train a small model from scratch; yield steps, and scores on the test split after them."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = SmallReader(task, layers, heads, channels).to(device)
    slow: dict[str, Any] = {"params": [], "lr": training.learning_rate}
    fast: dict[str, Any] = {"params": [], "lr": training.strength_learning_rate}
    for name, parameter in model.named_parameters():
        group = fast if name.endswith(("strength", "theta")) else slow
        group["params"].append(parameter)
    optimizer = torch.optim.AdamW([slow, fast], weight_decay=0.0)
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, training.steps)
    source = np.random.default_rng([*b"learning", seed])

    def losses() -> Iterator[Tensor]:
        for _ in range(training.steps):
            drawn = task.draw(source.choice(task.sizes, training.batch_size), source)
            right = torch.from_numpy(drawn.answer).to(device) - 1  # -1 where nothing is asked
            logits = model(*_ids(drawn, device))
            yield F.cross_entropy(logits.flatten(0, 1), right.flatten(), ignore_index=-1)

    asked = task.sequences("test")
    for step, _ in enumerate(questions.descend(model, losses(), optimizer, slower), start=1):
        if step % training.every == 0 or step == training.steps:
            yield step, task.measure(_answers(model, asked, device), asked)


@torch.no_grad()
def _answers(model: SmallReader, asked: IdSequences, device: str) -> np.ndarray:
    """What a model says of each token, ``[N, L]``."""
    columns = zip(*(ids.split(_TESTED) for ids in _ids(asked, device)), strict=True)
    said = torch.cat([model(*ids).argmax(-1) for ids in columns])
    return (said + 1).cpu().numpy()


def _ids(drawn: IdSequences, device: str) -> list[Tensor]:
    return [torch.from_numpy(ids).to(device) for ids in (drawn.first, drawn.second, drawn.value)]
