"""What the examples with language models of bytes share: Tiny Shakespeare, training, and bits.

Models are trained on random pieces of the first nine tenths of the text, and measured on the rest
in pieces of the length that they were trained on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from examples.tasks import get_task
from examples.tasks.metrics import score_losses

BYTES = 256

Schedule = Callable[[torch.optim.Optimizer, float, int], LRScheduler]


def one_cycle(optimizer: torch.optim.Optimizer, rate: float, steps: int) -> LRScheduler:
    """Rise for a tenth of the steps, then fall."""
    return OneCycleLR(optimizer, rate, steps, pct_start=0.1)


def byte_parser(
    text: str, *, length: int, steps: int, batch_size: int, learning_rate: float
) -> argparse.ArgumentParser:
    """A command line with these defaults; the text's first line is its description."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with input.txt")
    parser.add_argument("--length", type=int, default=length, help=f"bytes of a piece ({length})")
    parser.add_argument("--steps", type=int, default=steps, help=f"(default: {steps})")
    parser.add_argument("--batch-size", type=int, default=batch_size, help=f"({batch_size})")
    parser.add_argument("--learning-rate", type=float, default=learning_rate)
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    return parser


def say(name: str, run: Callable[[], str]) -> None:
    """Print the line that a run returns, or say in one line what does not fit."""
    try:
        typer.echo(run())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{name}: error: {error}") from None


def load_bytes(data_dir: Path, length: int) -> tuple[Tensor, Tensor]:
    """The bytes to train and to validate on, each of which must make at least one piece."""
    splits = get_task("tinyshakespeare").load(data_dir)
    train, test = (torch.tensor([*splits[name]["text"][0].encode()]) for name in splits)
    if not 1 < length < len(test):
        raise ValueError(f"length must be 2 to {len(test) - 1}, the bytes of a split, got {length}")
    return train, test


def fit(
    model: nn.Module, text: Tensor, args: argparse.Namespace, schedule: Schedule = one_cycle
) -> None:
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
