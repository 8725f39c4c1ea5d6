"""Train a language model with area attention on Tiny Shakespeare.

``python -m examples.area_transformer --data-dir DIR`` trains on the first nine tenths of the text,
byte by byte, and prints one line: the bits that the model needs for each character of the rest,
read in pieces of the length it was trained on. ``--max-width 1`` is ordinary attention.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
import typer
from torch import Tensor

from jat_graph.tasks import get_task
from models.area_transformer import AreaTransformer


def main() -> None:
    """Train the model, or say in one line what does not fit."""
    args = read_arguments()
    try:
        typer.echo(run(args))
    except (OSError, ValueError) as error:
        raise SystemExit(f"area_transformer: error: {error}") from None


def run(args: argparse.Namespace) -> str:
    """Train and measure; return the result in one line."""
    task = get_task("tinyshakespeare")
    start = time.perf_counter()
    torch.manual_seed(args.seed)
    data = task.load(args.data_dir)
    train, test = (to_bytes(data[split]["text"][0], args.length) for split in task.splits)
    model = AreaTransformer(vocabulary_size=256, max_width=args.max_width)
    fit(model, train, args.length, args.steps, args.batch_size, args.learning_rate)
    bits = task.compute_metrics(evaluate(model, test, args.length).numpy())["bits_per_character"]
    seconds = time.perf_counter() - start
    return (
        f"validation: {bits:.3f} bits a character, spans of up to {args.max_width}, "
        f"{seconds:.0f} s; seed {args.seed}"
    )


def to_bytes(text: str, length: int) -> Tensor:
    """Return the bytes of a text, which must make at least one piece."""
    data = torch.tensor(list(text.encode()))
    if not 0 < length < len(data):
        raise ValueError(f"length must be from 1 to below {len(data)} bytes, got {length}")
    return data


def fit(
    model: AreaTransformer, text: Tensor, length: int, steps: int, batch: int, rate: float
) -> None:
    """Train on random pieces."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.1)
    for _ in range(steps):
        starts = torch.randint(len(text) - length, (batch, 1))
        loss = losses(model, text[starts + torch.arange(length + 1)]).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def evaluate(model: AreaTransformer, text: Tensor, length: int) -> Tensor:
    """Return the loss of every byte in a whole piece but the first: ``[N]``."""
    model.eval()
    pieces = text.unfold(0, length + 1, length)  # [pieces, length + 1]
    return torch.cat([losses(model, tokens).flatten() for tokens in pieces.split(32)])


def losses(model: AreaTransformer, tokens: Tensor) -> Tensor:
    """Return the loss of each token but the first: ``[B, length + 1] -> [B, length]``."""
    return F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:], reduction="none")


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with input.txt")
    parser.add_argument("--max-width", type=int, default=3, help="longest span (default: 3)")
    parser.add_argument("--length", type=int, default=128, help="bytes of a piece (default: 128)")
    parser.add_argument("--steps", type=int, default=400, help="(default: 400)")
    parser.add_argument("--batch-size", type=int, default=16, help="(default: 16)")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="(default: 3e-3)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
