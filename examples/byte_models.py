"""Train a language model of characters on Tiny Shakespeare, and print its bits per character.

``python -m examples.byte_models --model area_transformer --data-dir DIR`` trains on random pieces
of the first nine tenths of the text, and reads the rest in pieces of the same length.
``jat_decoder`` is trained with jump heads and without, on the same pieces in the same order. Its
scores start near 0, where the paper's threshold of 6 joins nothing, and ``vote_rate`` would look
ahead: its threshold is a small number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR

from examples import questions
from examples.jat_encoder import density
from examples.options import example, option
from examples.tasks import get_task
from examples.tasks.metrics import score_losses
from jat_graph import JatConfig, PairGraph
from jat_graph.patterns import parse_pattern, reaches_all
from models.area_transformer import AreaTransformer
from models.jat_decoder import JatDecoder
from models.memory_compressed import MemoryCompressedModel
from models.sparse_transformer import SparseTransformer

BYTES, NO_TARGET = 256, -100  # where there is no token to say, as cross_entropy has it
# Bytes of a piece, steps, pieces of a batch, and learning rate, of which nothing else is said.
NAMES = ("length", "steps", "batch_size", "learning_rate")
BUDGETS: dict[str, tuple[int, int, int, float]] = {
    "jat_decoder": (128, 600, 16, 2e-3),
    "sparse_transformer": (256, 500, 12, 3e-3),
    "area_transformer": (128, 400, 16, 3e-3),
    "memory_compressed": (256, 1000, 8, 5e-3),
}
# The share of the steps in which rates rise before they fall, a tenth if nothing else is said; 0 is
# a cosine that only falls.
RISES = {"jat_decoder": 0.0, "sparse_transformer": 0.3}


@dataclass
class Options:
    """What is asked for; None is what suits the model."""

    model: str = option(", ".join(BUDGETS))
    data_dir: Path = option("folder with input.txt")
    length: int | None = option("bytes of a piece", None)
    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    seed: int = 0
    threshold: float = option("for jat_decoder: ρ", 0.3)
    key_step: int = option("for jat_decoder: every n-th token votes", 8)
    pattern: str = option("for sparse_transformer: which tokens heads read", "strided:16")
    max_width: int = option("for area_transformer: longest span", 3)
    block: int = option("for memory_compressed: tokens in a block of the local layers", 64)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train and measure; yield the results in one line."""
    if args.model not in BUDGETS:
        raise ValueError(f"model must be one of {', '.join(BUDGETS)}, got {args.model!r}")
    for name, value in zip(NAMES, BUDGETS[args.model], strict=True):
        setattr(args, name, value if getattr(args, name) is None else getattr(args, name))
    if args.model == "jat_decoder":
        said = run_jumps(args)
    elif args.model == "sparse_transformer":
        said = run_pattern(args)
    elif args.model == "area_transformer":
        _, said = run(args, AreaTransformer, args.max_width)
        said += f", spans of up to {args.max_width}"
    else:
        _, said = run(args, MemoryCompressedModel, block=args.block)
    yield f"validation: {said}; seed {args.seed}"


def run_jumps(args: Any) -> str:
    """With jump heads and without."""
    graph = PairGraph(threshold=args.threshold, key_selection="strided", key_step=args.key_step)
    jumps = JatConfig(graph=graph, hop_weights=(0.5, 0.5), heads=2)
    _, base = run(args, JatDecoder, None, channels=64, layers=2)
    model, jump = run(args, JatDecoder, jumps, channels=64, layers=2)
    _, test = load_bytes(args.data_dir, args.length)
    joined = density(model, test[: args.length].unsqueeze(0), is_causal=True)
    return f"base {base}; jump {jump}; {joined:.0%} of pairs joined"


def run_pattern(args: Any) -> str:
    """Heads that read a few of the tokens so far."""
    pattern = parse_pattern(args.pattern)
    _, said = run(args, SparseTransformer, pattern, args.length)
    edges = sum(pattern.num_edges(args.length, head) for head in range(pattern.period))
    share = edges / pattern.period / args.length**2
    reach = "do" if reaches_all(pattern, args.length, 2) else "do not"
    return (
        f"{said}; heads read {share:.0%} of all pairs, two layers {reach} connect every token "
        "with all before it"
    )


def load_bytes(data_dir: Path, length: int) -> tuple[Tensor, Tensor]:
    """The bytes to train and to validate on, each of which must make at least one piece."""
    splits = get_task("tinyshakespeare").load(data_dir)
    train, test = (torch.tensor([*splits[name]["text"][0].encode()]) for name in splits)
    if not 1 < length < len(test):
        raise ValueError(f"length must be 2 to {len(test) - 1}, the bytes of a split, got {length}")
    return train, test


def run(args: Any, kind: Callable[..., nn.Module], *own: Any, **sizes: Any) -> tuple[Any, str]:
    """Make a model, train it and measure it; return it and its bits and seconds in words."""
    train, test = load_bytes(args.data_dir, args.length)
    start = time.perf_counter()
    torch.manual_seed(args.seed)
    model = kind(BYTES, *own, **sizes)
    fit(model, draw_pieces(train, args), args, RISES.get(args.model, 0.1))
    bits = bits_per_character(model, test, args.length)
    return model, f"{bits:.3f} bits a character, {time.perf_counter() - start:.0f} s"


def draw_pieces(text: Tensor, args: Any) -> Iterator[Tensor]:
    """Yield batches of random pieces, without end."""
    while True:
        starts = torch.randint(len(text) - args.length, (args.batch_size, 1))
        yield text[starts + torch.arange(args.length + 1)]


def fit(model: nn.Module, batches: Iterator[Tensor], args: Any, rise: float = 0.1) -> None:
    """Train on batches of tokens; rates rise for a share of the steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    if rise:
        rates: Any = OneCycleLR(optimizer, args.learning_rate, args.steps, pct_start=rise)
    else:
        rates = CosineAnnealingLR(optimizer, args.steps)
    means = (losses(model, tokens).mean() for tokens in islice(batches, args.steps))
    for _ in questions.descend(model, means, optimizer, rates, clip=1.0):
        pass


def bits_per_character(model: nn.Module, text: Tensor, length: int) -> float:
    """Measure every byte in a whole piece but the first."""
    found = evaluate(model, text.unfold(0, length + 1, length))
    return score_losses(found.numpy())["bits_per_character"]


@torch.no_grad()
def evaluate(model: nn.Module, pieces: Tensor) -> Tensor:
    """Return the losses of all tokens of pieces."""
    model.eval()
    return torch.cat([losses(model, tokens) for tokens in pieces.split(16)])


def losses(model: nn.Module, tokens: Tensor) -> Tensor:
    """Return the loss of every token of pieces ``[B, L]`` that is said, as the first is not."""
    inputs, targets = tokens[:, :-1].clamp(min=0), tokens[:, 1:]
    found = F.cross_entropy(model(inputs).mT, targets, reduction="none")
    return found[targets != NO_TARGET]


if __name__ == "__main__":
    main()
