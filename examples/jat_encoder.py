"""Train a classifier from scratch on ListOps: ordinary heads, jump heads, PyG layers in the heads.

``python -m examples.jat_encoder`` makes nested lists like ``[MAX 2 9 [MIN 4 7 ] 0 ]`` and trains
models to say what they come to, on the same lists in the same order. A line for each kind of heads
says how many lists that were not seen get the right answer, and how many pairs of tokens the heads
of the last seed join; each layer of ``--conv`` runs on such graphs in the place of the jump.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from datasets import Dataset
from torch import Tensor, nn

from examples import questions
from examples.options import example, option
from examples.tasks.listops import listops_task
from jat_graph import JatConfig, PairGraph, jump_operator
from jat_graph.training import parameter_groups
from models.jat_encoder import JatEncoder

CLASSES = 10
WORDS = ("padding", "first", "[MIN", "[MAX", "[MED", "[SM", "]", *"0123456789")
PADDING, FIRST = 0, 1
ON_STONES = ("HypergraphConv", "StoneConv")
STRENGTH_LR = 0.1


@dataclass
class Options:
    """What is asked for."""

    min_length: int = option("tokens of a list", 4)
    max_length: int = option("tokens of a list", 24)
    train_size: int = option("lists to train on", 20_000)
    conv: list[str] = option("layers of PyG or jat_graph.nn", ["GCNConv", "GATv2Conv", "StoneConv"])
    threshold: float = option("ρ of pairs", 4.0)
    steps: int = 400
    batch_size: int = 64
    learning_rate: float = 2e-3
    seeds: int = 3


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train each kind of heads; yield a line for each."""
    variants = {"plain": None, "jump": settings(args.threshold)}
    variants |= {name: settings(args.threshold, name) for name in args.conv}
    for config in variants.values():
        make_model(config)  # says what does not fit before anything is trained
    task = listops_task(
        train=args.train_size, min_length=args.min_length, max_length=args.max_length
    )
    splits = task.load(None, ("train", "test"))
    (train, train_labels), (test, test_labels) = (encode(rows) for rows in splits.values())
    for name, config in variants.items():
        start, found = time.perf_counter(), []
        for seed in range(args.seeds):
            torch.manual_seed(seed)
            model = make_model(config)
            fit(model, train, train_labels, args, seed)
            right = evaluate(model, test).argmax(-1) == test_labels
            found.append(float(right.float().mean()))
        seconds = (time.perf_counter() - start) / args.seeds
        spread = f"{min(found):.1%} to {max(found):.1%}, {args.seeds} seeds"
        joined = "" if config is None else f"{density(model, test[:64]):.0%} of pairs joined, "
        yield (
            f"{name}: {statistics.mean(found):.1%} right ({spread}), {joined}{seconds:.0f} s a seed"
        )


def settings(threshold: float, conv: str | None = None) -> JatConfig:
    """Return the settings of heads that jump, or have a layer of PyG on their graphs."""
    if conv in ON_STONES:
        return JatConfig.stones(conv=conv)
    graph = PairGraph(threshold=threshold, standardize=True)
    return JatConfig(graph=graph, heads="all", strength="learned", conv=conv)


def make_model(config: JatConfig | None) -> JatEncoder:
    """Return a model of two layers."""
    return JatEncoder(len(WORDS), CLASSES, config, channels=64, layers=2)


def encode(rows: Dataset) -> tuple[Tensor, Tensor]:
    """Return the tokens of each list, ``[N, L]``, and the labels, ``[N]``."""
    number = {word: index for index, word in enumerate(WORDS)}
    lists = [
        torch.tensor([FIRST, *(number[word] for word in expression.split())])
        for expression in rows["text"]
    ]
    tokens = nn.utils.rnn.pad_sequence(lists, batch_first=True, padding_value=PADDING)
    return tokens, torch.tensor(rows["label"])


def fit(model: JatEncoder, tokens: Tensor, labels: Tensor, args: Options, seed: int = 0) -> None:
    """Train on random lists, strengths with a learning rate of their own."""
    groups = parameter_groups(
        model, lr=args.learning_rate, strength_lr=STRENGTH_LR, weight_decay=0.01
    )
    optimizer = torch.optim.AdamW(groups)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    order = torch.Generator().manual_seed(seed)

    def losses() -> Iterator[Tensor]:
        for _ in range(args.steps):
            rows = torch.randint(len(tokens), (args.batch_size,), generator=order)
            yield F.cross_entropy(logits_of(model, tokens[rows]), labels[rows])

    for _ in questions.descend(model, losses(), optimizer, schedule, clip=1.0):
        pass


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
def density(model: nn.Module, tokens: Tensor, is_causal: bool = False) -> float:
    """Return the share of pairs of tokens that are joined, over the jump heads of all layers."""
    mask = tokens != PADDING if not is_causal else torch.ones_like(tokens, dtype=torch.bool)
    apart = torch.ones(tokens.size(1), tokens.size(1), dtype=torch.bool)
    apart = apart.tril(-1) if is_causal else apart.fill_diagonal_(False)
    pairs = (mask[:, None] & mask[..., None] & apart).unsqueeze(1)  # [B, 1, L, L]
    shares = []

    def look(attention: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        query, key, _ = attention.project(inputs[0], inputs[0])
        query, key = (heads[:, attention.jump_heads] for heads in (query, key))  # [B, J, L, D]
        masks = {"attention_mask": mask, "is_causal": is_causal}
        graph = jump_operator(query, key, config=attention.config, **masks)
        joined = (graph.to_dense() != 0) & pairs
        shares.append(float(joined.sum() / (pairs.sum() * query.size(1))))

    hooks = [layer.attention.register_forward_pre_hook(look) for layer in model.layers]
    model(tokens, mask)
    for hook in hooks:
        hook.remove()
    return statistics.mean(shares)


if __name__ == "__main__":
    main()
