"""What the examples with language models of bytes share: Tiny Shakespeare, training, and bits.

Models are trained on random pieces of the first nine tenths of the text, and measured on the rest
in pieces of the length that they were trained on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from examples.options import option
from examples.tasks import get_task
from examples.tasks.metrics import score_losses

BYTES = 256

ModelT = TypeVar("ModelT", bound=nn.Module)
Schedule = Callable[[torch.optim.Optimizer, float, int], LRScheduler]


def one_cycle(optimizer: torch.optim.Optimizer, rate: float, steps: int) -> LRScheduler:
    """Rise for a tenth of the steps, then fall."""
    return OneCycleLR(optimizer, rate, steps, pct_start=0.1)


@dataclass
class ByteOptions:
    """What is asked for of any of these models."""

    data_dir: Path = option("folder with input.txt")
    length: int = option("bytes of a piece", 256)
    steps: int = 1000
    batch_size: int = 8
    learning_rate: float = 5e-3
    seed: int = 0


def load_bytes(data_dir: Path, length: int) -> tuple[Tensor, Tensor]:
    """The bytes to train and to validate on, each of which must make at least one piece."""
    splits = get_task("tinyshakespeare").load(data_dir)
    train, test = (torch.tensor([*splits[name]["text"][0].encode()]) for name in splits)
    if not 1 < length < len(test):
        raise ValueError(f"length must be 2 to {len(test) - 1}, the bytes of a split, got {length}")
    return train, test


def fit(model: nn.Module, text: Tensor, args: ByteOptions, schedule: Schedule = one_cycle) -> None:
    """Train on random pieces."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    rates = schedule(optimizer, args.learning_rate, args.steps)
    for _ in range(args.steps):
        starts = torch.randint(len(text) - args.length, (args.batch_size, 1))
        loss = losses(model, text[starts + torch.arange(args.length + 1)]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()


def train(
    make: Callable[[], ModelT], args: ByteOptions, schedule: Schedule = one_cycle
) -> tuple[ModelT, str]:
    """Make a model, train it and measure it; return it and its bits and seconds in words."""
    train, test = load_bytes(args.data_dir, args.length)
    start = time.perf_counter()
    torch.manual_seed(args.seed)
    model = make()
    fit(model, train, args, schedule)
    bits = bits_per_character(model, test, args.length)
    return model, f"{bits:.3f} bits a character, {time.perf_counter() - start:.0f} s"


@torch.no_grad()
def bits_per_character(model: nn.Module, text: Tensor, length: int) -> float:
    """Measure every byte in a whole piece but the first."""
    model.eval()
    pieces = text.unfold(0, length + 1, length)  # [pieces, length + 1]
    found = torch.cat([losses(model, tokens).flatten() for tokens in pieces.split(16)])
    return score_losses(found.numpy())["bits_per_character"]


def losses(model: nn.Module, tokens: Tensor) -> Tensor:
    """Return the loss of each token but the first: ``[B, length + 1] -> [B, length]``."""
    return F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:], reduction="none")
