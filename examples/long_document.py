"""Fine-tune an encoder on whole documents: which of 15 genres is a text of the Brown corpus?

``python -m examples.long_document --model PATH --data-dir DIR`` stretches the encoder's positions,
gives every head a window, a global token and stepping stones that bring values from anywhere,
trains on the training texts, and prints the share of right answers on the validation texts after
every epoch. How far heads jump is learned from 0, and printed last. ``--strength 0`` trains the
pattern alone. This file is for reading: ``examples.run_classification --jat_preset stones`` does
the same with checkpoints, and resumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
import typer
from datasets import Dataset
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase, get_linear_schedule_with_warmup

from examples.options import example, option
from examples.tasks import get_task
from examples.tasks.documents import GENRES
from jat_graph import JatConfig
from jat_graph.training import parameter_groups
from models.long_document import LongDocument


class Batch(NamedTuple):
    """Documents of similar length."""

    tokens: Tensor  # [B, L]
    mask: Tensor  # [B, L]
    labels: Tensor  # [B]


@dataclass
class Options:
    """What is asked for."""

    model: str = option("folder or Hub name of an encoder")
    data_dir: Path = option("folder with the corpus")
    max_length: int = option("tokens of a text", 4096)
    pattern: str = option("keys that every head reads", "window:256+global:1")
    strength: str = option("strength of jumps, a number or learned", "learned")
    epochs: int = 3
    batch_size: int = 2
    accumulation: int = option("batches in a step", 2)
    learning_rate: float = 2e-4
    limit: int = option("largest number of texts of a split", 10_000)
    checkpointing: bool = option("less memory, more time", False)
    bf16: bool = option("compute in bfloat16 where possible", False)
    seed: int = 0


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train the model; yield what it reaches."""
    strength = args.strength if args.strength == "learned" else float(args.strength)
    config = JatConfig.stones(pattern=args.pattern, key_selection="sampled", strength=strength)
    splits = get_task("brown").load(args.data_dir, ("train", "validation"))
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    # Texts come genre by genre.
    drawn = [rows.shuffle(0).select(range(min(args.limit, len(rows)))) for rows in splits.values()]
    train, validation = (encode(rows, tokenizer, args.max_length) for rows in drawn)
    torch.manual_seed(args.seed)
    model = LongDocument(args.model, len(GENRES), config, args.max_length, args.checkpointing)
    for epoch, loss in enumerate(fit(model, train, args), start=1):
        logits, labels = evaluate(model, validation, args)
        accuracy = float((logits.argmax(1) == labels).float().mean())
        yield f"epoch {epoch}: loss {loss:.3f}, validation accuracy {accuracy:.1%}"
    *_, strengths = parameter_groups(model, lr=args.learning_rate)
    if strengths["params"]:
        queries, keys, values = torch.stack(strengths["params"]).abs().mean((0, 2, 3)).tolist()
        yield f"mean size of θ: queries {queries:.3f}, keys {keys:.3f}, values {values:.3f}"


def encode(
    rows: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> list[tuple[list[int], int]]:
    """Return tokens and label of each document, and say what does not fit."""
    texts = tokenizer(list(rows["text"]), verbose=False)["input_ids"]
    lost = sum(max(0, len(tokens) - max_length) for tokens in texts)
    typer.echo(f"{len(texts)} texts, {lost / sum(map(len, texts)):.1%} of the tokens cut off")
    ends = tokenizer.sep_token_id
    kept = [t if len(t) <= max_length else [*t[: max_length - 1], ends] for t in texts]
    return list(zip(kept, rows["label"], strict=True))


def batches(documents: list[tuple[list[int], int]], size: int) -> Iterator[Batch]:
    """Yield batches of documents of similar length, in random order."""
    ordered = sorted(documents, key=lambda document: len(document[0]))
    groups = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    for index in torch.randperm(len(groups)).tolist():
        texts, labels = zip(*groups[index], strict=True)
        rows = [torch.tensor(text) for text in texts]
        tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        real = [torch.ones_like(row) for row in rows]
        mask = torch.nn.utils.rnn.pad_sequence(real, batch_first=True)
        yield Batch(tokens, mask, torch.tensor(labels))


def fit(
    model: LongDocument, documents: list[tuple[list[int], int]], args: Options
) -> Iterator[float]:
    """Train one epoch after the other, and yield the mean loss of each."""
    steps = -(-len(documents) // args.batch_size)
    groups = parameter_groups(model, lr=args.learning_rate, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups)  # strengths learn 100 times as fast
    total = args.epochs * -(-steps // args.accumulation)
    schedule = get_linear_schedule_with_warmup(optimizer, total // 10, total)
    for _ in range(args.epochs):
        model.train()
        losses = []
        for step, batch in enumerate(batches(documents, args.batch_size), start=1):
            with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
                logits = model(batch.tokens, batch.mask)
            loss = F.cross_entropy(logits.float(), batch.labels)
            (loss / args.accumulation).backward()
            losses.append(loss.item())
            if step % args.accumulation == 0 or step == steps:
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
        yield sum(losses) / len(losses)


@torch.no_grad()
def evaluate(
    model: LongDocument, documents: list[tuple[list[int], int]], args: Options
) -> tuple[Tensor, Tensor]:
    """Return the logits ``[N, 15]`` and the labels ``[N]``."""
    model.eval()
    found = []
    for batch in batches(documents, args.batch_size):
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            found.append((model(batch.tokens, batch.mask).float(), batch.labels))
    logits, labels = zip(*found, strict=True)
    return torch.cat(logits), torch.cat(labels)


if __name__ == "__main__":
    main()
