"""Train a classifier from scratch on ListOps, with jump heads and without.

``python -m examples.jat_encoder`` makes nested lists like ``[MAX 2 9 [MIN 4 7 ] 0 ]`` and trains
both models to say what they come to, on the same lists in the same order. It prints one line: the
share of right answers to lists that were not seen, and how many pairs of tokens the jump heads
join. What a digit means for the answer takes as many steps to find out as lists are nested.

Scores of a model that is trained from scratch start near 0, where the paper's threshold of 6 joins
nothing, so the threshold is a small number.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
import typer
from datasets import Dataset
from torch import Tensor, nn

from jat_graph import JatConfig, attention_graph
from jat_graph.tasks import ListOpsTask
from models.jat_encoder import JatEncoder

CLASSES = 10
WORDS = ("padding", "first", "[MIN", "[MAX", "[MED", "[SM", "]", *"0123456789")
PADDING, FIRST = 0, 1


def main() -> None:
    """Train both models and print what they reach."""
    args = read_arguments()
    try:
        task = ListOpsTask(
            train_size=args.train_size,
            min_length=args.min_length,
            max_length=args.max_length,
            seed=args.seed,
        )
        jumps = JatConfig(threshold=args.threshold, hop_weights=(0.5, 0.5), heads=2)
    except ValueError as error:
        raise SystemExit(f"jat_encoder: error: {error}") from None
    splits = task.load(None, ("train", "test"))
    (train, train_labels), (test, test_labels) = (encode(rows) for rows in splits.values())
    results = []
    for name, config in (("base", None), ("jump", jumps)):
        start = time.perf_counter()
        torch.manual_seed(args.seed)
        model = JatEncoder(len(WORDS), CLASSES, config, channels=64, layers=2)
        fit(model, train, train_labels, args.steps, args.batch_size, args.learning_rate)
        metrics = task.compute_metrics(evaluate(model, test).numpy(), test_labels.numpy())
        results.append(f"{name} {metrics['accuracy']:.1%}, {time.perf_counter() - start:.0f} s")
    joined = density(model, test[:64])
    typer.echo(f"test: {'; '.join(results)}; {joined:.0%} of pairs joined; seed {args.seed}")


def encode(rows: Dataset) -> tuple[Tensor, Tensor]:
    """Return the tokens of each list, ``[N, L]``, and the labels, ``[N]``."""
    number = {word: place for place, word in enumerate(WORDS)}
    lists = [
        torch.tensor([FIRST, *(number[word] for word in expression.split())])
        for expression in rows["expression"]
    ]
    tokens = nn.utils.rnn.pad_sequence(lists, batch_first=True, padding_value=PADDING)
    return tokens, torch.tensor(rows["label"])


def fit(
    model: JatEncoder, tokens: Tensor, labels: Tensor, steps: int, batch: int, rate: float
) -> None:
    """Train on random lists."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = torch.randint(len(tokens), (batch,))
        loss = F.cross_entropy(logits_of(model, tokens[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@torch.no_grad()
def evaluate(model: JatEncoder, tokens: Tensor) -> Tensor:
    """Return the logits of each list, ``[N, 10]``."""
    model.eval()
    return torch.cat([logits_of(model, rows) for rows in tokens.split(64)])


def logits_of(model: JatEncoder, tokens: Tensor) -> Tensor:
    """Return logits ``[B, 10]``, without the columns that hold padding only."""
    mask = tokens != PADDING
    longest = int(mask.sum(-1).max())
    return model(tokens[:, :longest], mask[:, :longest])


@torch.no_grad()
def density(model: JatEncoder, tokens: Tensor) -> float:
    """Return the share of pairs of tokens that a vote joins, over all jump heads."""
    mask = tokens != PADDING
    edges = pairs = 0

    def look(attention: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal edges, pairs
        query, key, _ = attention.project(inputs[0], inputs[0])
        query, key = (heads[:, attention.jump_heads] for heads in (query, key))  # [B, J, L, D]
        graph = attention_graph(query, key, config=attention.config, attention_mask=mask)
        edges += graph.num_edges
        counts = mask.sum(-1)
        pairs += len(attention.jump_heads) * int((counts * (counts - 1)).sum())

    hooks = [layer.attention.register_forward_pre_hook(look) for layer in model.layers]
    model(tokens, mask)
    for hook in hooks:
        hook.remove()
    return edges / pairs


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--min-length", type=int, default=4, help="tokens (default: 4)")
    parser.add_argument("--max-length", type=int, default=24, help="tokens (default: 24)")
    parser.add_argument("--train-size", type=int, default=20_000, help="lists (default: 20000)")
    parser.add_argument("--threshold", type=float, default=0.1, help="ρ (default: 0.1)")
    parser.add_argument("--steps", type=int, default=800, help="(default: 800)")
    parser.add_argument("--batch-size", type=int, default=64, help="(default: 64)")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="(default: 2e-3)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
