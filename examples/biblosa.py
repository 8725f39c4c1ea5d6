"""Train a sentence classifier with bi-directional block self-attention on SST-2, from scratch.

``python -m examples.biblosa --data-dir DIR`` learns the words of the training sentences and phrases
anew, without pretrained vectors, and prints one line: the share of the dev set's sentences whose
sentiment the model tells.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from examples.options import example, option
from examples.tasks import get_task
from models.biblosa import BiBloSAN

UNKNOWN = 0
PADDING = -1


class Sentences(NamedTuple):
    """Encoded sentences, and the class of each ``[N]``."""

    words: list[Tensor]
    labels: Tensor


@dataclass
class Options:
    """What is asked for."""

    data_dir: Path = option("folder with SST-2's files")
    block_length: int = option("words of a block, 0 to choose", 5)
    epochs: int = 1
    batch_size: int = 64
    learning_rate: float = 2e-3
    seed: int = 0


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train and measure; yield the result in one line."""
    task = get_task("sst2")
    start = time.perf_counter()
    torch.manual_seed(args.seed)
    data = task.load(args.data_dir)
    vocabulary = learn_words(data["train"]["text"])
    train, dev = (
        encode(data[split]["text"], data[split]["label"], vocabulary) for split in task.splits
    )
    model = BiBloSAN(len(vocabulary) + 1, classes=2, block_length=args.block_length or None)
    fit(model, train, args.epochs, args.batch_size, args.learning_rate)
    accuracy = float((predict(model, dev).argmax(1) == dev.labels).float().mean())
    seconds = time.perf_counter() - start
    yield f"validation: {accuracy:.1%} right, {seconds:.0f} s; seed {args.seed}"


def learn_words(sentences: list[str]) -> dict[str, int]:
    """Number the words that come at least twice, from 1; the others are unknown."""
    counts = Counter(word for sentence in sentences for word in sentence.split())
    known = sorted(word for word, count in counts.items() if count > 1)
    return {word: number for number, word in enumerate(known, start=1)}


def encode(sentences: list[str], labels: list[int], vocabulary: dict[str, int]) -> Sentences:
    """Turn words into numbers."""
    words = [
        torch.tensor([vocabulary.get(word, UNKNOWN) for word in sentence.split()])
        for sentence in sentences
    ]
    return Sentences(words, torch.tensor(labels))


def fit(model: BiBloSAN, data: Sentences, epochs: int, batch_size: int, rate: float) -> None:
    """Train on batches of sentences of similar length, in random order."""
    batches = similar_batches(data.words, batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    steps = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.1)
    for _ in range(epochs):
        for number in torch.randperm(len(batches)).tolist():
            rows = batches[number]
            loss = F.cross_entropy(logits_of(model, data, rows), data.labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


@torch.no_grad()
def predict(model: BiBloSAN, data: Sentences) -> Tensor:
    """Return logits ``[N, 2]``."""
    model.eval()
    rows = torch.arange(len(data.labels)).split(128)
    return torch.cat([logits_of(model, data, part) for part in rows])


def similar_batches(words: list[Tensor], size: int) -> list[Tensor]:
    """Return the sentences' numbers in batches of about one length, which need little padding."""
    lengths = torch.tensor([len(sentence) for sentence in words])
    return list(lengths.argsort(stable=True).split(size))


def logits_of(model: BiBloSAN, data: Sentences, rows: Tensor) -> Tensor:
    """Return logits of some sentences: ``[B, 2]``."""
    chosen = [data.words[row] for row in rows.tolist()]
    words = pad_sequence(chosen, batch_first=True, padding_value=PADDING)  # [B, L]
    logits: Tensor = model(words.clamp(min=0), words != PADDING)
    return logits


if __name__ == "__main__":
    main()
