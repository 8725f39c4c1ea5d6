"""Train a Sparse Transformer on the characters of Tiny Shakespeare.

``python -m examples.sparse_transformer --data-dir DIR`` trains on random pieces of the first nine
tenths of the text and prints one line: the bits that the model needs for a character of the rest,
read in pieces of the length it was trained on. ``--pattern fixed:16:2`` has the other kind of
heads, ``--pattern causal`` is the same model with dense heads.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import typer
from torch import Tensor, nn

from jat_graph.patterns import parse_pattern, reaches_all
from jat_graph.tasks import get_task
from models.sparse_transformer import SparseTransformer, next_token_losses

BYTES = 256


def main() -> None:
    """Train the model, or say in one line what does not fit."""
    args = read_arguments()
    try:
        typer.echo(run(args))
    except (OSError, ValueError) as error:
        raise SystemExit(f"sparse_transformer: error: {error}") from None


def run(args: argparse.Namespace) -> str:
    """Train and measure; return the result in one line."""
    task = get_task("tinyshakespeare")
    pattern = parse_pattern(args.pattern)
    data = task.load(args.data_dir)
    train, test = (to_bytes(data[split]["text"][0], args.length) for split in task.splits)
    start = time.perf_counter()
    torch.manual_seed(args.seed)
    model = SparseTransformer(BYTES, pattern, args.length)
    fit(model, train, args.length, args.steps, args.batch_size, args.learning_rate)
    losses = evaluate(model, test, args.length)
    bits = task.compute_metrics(losses.numpy())["bits_per_character"]
    edges = sum(pattern.num_edges(args.length, head) for head in range(pattern.period))
    share = edges / pattern.period / args.length**2
    reach = "do" if reaches_all(pattern, args.length, 2) else "do not"
    return (
        f"validation: {bits:.3f} bits a character, {time.perf_counter() - start:.0f} s; "
        f"heads read {share:.0%} of all pairs, two layers {reach} connect every token "
        f"with all before it; seed {args.seed}"
    )


def to_bytes(text: str, length: int) -> Tensor:
    """Return the bytes of a text, which must make at least one piece."""
    data = torch.tensor(list(text.encode()))
    if not 1 < length < len(data):
        raise ValueError(f"length must be 2 to {len(data) - 1}, the bytes of a split, got {length}")
    return data


def fit(
    model: SparseTransformer, text: Tensor, length: int, steps: int, batch: int, rate: float
) -> None:
    """Train on random pieces."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        starts = torch.randint(len(text) - length, (batch, 1))
        loss = next_token_losses(model, text[starts + torch.arange(length + 1)]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def evaluate(model: SparseTransformer, text: Tensor, length: int) -> Tensor:
    """Return the loss of each byte but the first and those after the last whole piece: ``[N]``."""
    model.eval()
    pieces = text.unfold(0, length + 1, length)  # [pieces, length + 1]
    return torch.cat([next_token_losses(model, piece).flatten() for piece in pieces.split(16)])


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with input.txt")
    parser.add_argument("--pattern", default="strided:16", help="(default: strided:16)")
    parser.add_argument("--length", type=int, default=256, help="bytes of a piece (default: 256)")
    parser.add_argument("--steps", type=int, default=500, help="(default: 500)")
    parser.add_argument("--batch-size", type=int, default=12, help="(default: 12)")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="(default: 3e-3)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
