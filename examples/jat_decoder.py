"""Train a character-level language model on Tiny Shakespeare, with jump heads and without.

``python -m examples.jat_decoder --data-dir DIR`` trains both models on the same pieces of the first
nine tenths of the text, in the same order, and prints one line: the bits that each needs for a
character of the rest, read in pieces of the length it was trained on, and how many pairs of tokens
the jump heads join there.

Scores of a model that is trained from scratch start near 0, where the paper's threshold of 6 joins
nothing, and a decoder cannot take its threshold from the whole sequence (``vote_rate`` would look
ahead). So the threshold is a small number. The keys that vote are every eighth token.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from jat_graph import JatConfig, PairGraph, attention_graph
from jat_graph.tasks import get_task
from models.jat_decoder import JatDecoder

BYTES = 256


def main() -> None:
    """Train both models and print what they reach."""
    args = read_arguments()
    task = get_task("tinyshakespeare")
    try:
        jumps = JatConfig(
            PairGraph(threshold=args.threshold, key_selection="strided", key_step=args.key_step),
            hop_weights=(0.5, 0.5),
            heads=2,
        )
        data = task.load(args.data_dir)
        train, test = (to_bytes(data[split]["text"][0], args.length) for split in task.splits)
    except (OSError, ValueError) as error:
        raise SystemExit(f"jat_decoder: error: {error}") from None
    results = []
    for name, config in (("base", None), ("jump", jumps)):
        start = time.perf_counter()
        torch.manual_seed(args.seed)
        model = JatDecoder(BYTES, config, channels=64, layers=2)
        fit(model, train, args.length, args.steps, args.batch_size, args.learning_rate)
        losses = evaluate(model, test, args.length)
        bits = task.compute_metrics(losses.numpy())["bits_per_character"]
        results.append(f"{name} {bits:.3f} bits a character, {time.perf_counter() - start:.0f} s")
    joined = density(model, test[: args.length].unsqueeze(0))
    typer.echo(f"validation: {'; '.join(results)}; {joined:.0%} of pairs joined; seed {args.seed}")


def to_bytes(text: str, length: int) -> Tensor:
    """Return the bytes of a text, which must make at least one piece."""
    data = torch.tensor(list(text.encode()))
    if not 1 < length < len(data):
        raise ValueError(f"length must be 2 to {len(data) - 1}, the bytes of a split, got {length}")
    return data


def fit(model: JatDecoder, text: Tensor, length: int, steps: int, batch: int, rate: float) -> None:
    """Train on random pieces."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        starts = torch.randint(len(text) - length, (batch, 1))
        loss = losses_of(model, text[starts + torch.arange(length + 1)]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def evaluate(model: JatDecoder, text: Tensor, length: int) -> Tensor:
    """Return the loss of each byte but the first and those after the last whole piece: ``[N]``."""
    model.eval()
    pieces = text.unfold(0, length + 1, length)  # [pieces, length + 1]
    return torch.cat([losses_of(model, tokens).flatten() for tokens in pieces.split(16)])


def losses_of(model: JatDecoder, tokens: Tensor) -> Tensor:
    """Return the loss of each token but the first: ``[B, length + 1] -> [B, length]``."""
    return F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:], reduction="none")


@torch.no_grad()
def density(model: JatDecoder, tokens: Tensor) -> float:
    """Return the share of pairs of tokens that a vote joins, over all jump heads."""
    edges = pairs = 0

    def look(attention: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal edges, pairs
        query, key, _ = attention.project(inputs[0], inputs[0])
        query, key = (heads[:, attention.jump_heads] for heads in (query, key))  # [B, J, L, D]
        graph = attention_graph(query, key, config=attention.config, is_causal=True)
        edges += graph.num_edges
        pairs += query.size(0) * query.size(1) * query.size(2) * (query.size(2) - 1) // 2

    hooks = [layer.attention.register_forward_pre_hook(look) for layer in model.layers]
    model(tokens)
    for hook in hooks:
        hook.remove()
    return edges / pairs


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with input.txt")
    parser.add_argument("--threshold", type=float, default=0.3, help="ρ (default: 0.3)")
    parser.add_argument("--key-step", type=int, default=8, help="every n-th votes (default: 8)")
    parser.add_argument("--length", type=int, default=128, help="bytes of a piece (default: 128)")
    parser.add_argument("--steps", type=int, default=600, help="(default: 600)")
    parser.add_argument("--batch-size", type=int, default=16, help="(default: 16)")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="(default: 2e-3)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
