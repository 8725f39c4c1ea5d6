"""Train a Music Transformer on Bach's chorales, with relative attention and without.

``python -m examples.music_transformer --data-dir DIR`` trains both models on the same pieces of the
training chorales in the same order, each moved up or down by some semitones, and prints the
negative log likelihood of unseen ones in nats, for each note and for a time step of four notes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from examples.byte_models import NO_TARGET, evaluate, fit
from examples.options import example, option
from examples.tasks import get_task
from examples.tasks.language import VOCABULARY_SIZE
from models.music_transformer import MusicTransformer

VOICES, PITCHES = 4, 128
SHIFTS = range(-5, 7)  # semitones, all twelve keys


@dataclass
class Options:
    """What is asked for."""

    data_dir: Path = option("folder with the chorales")
    length: int = option("tokens of a piece", 256)
    steps: int = 400
    batch_size: int = 8
    learning_rate: float = 5e-3
    seed: int = 0


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train and measure; yield the results in one line."""
    if args.length < VOICES or args.length % VOICES != 0:
        raise ValueError(f"length must be a multiple of {VOICES}, got {args.length}")
    data = get_task("chorales").load(args.data_dir, ("train", "test"))
    train, test = (cut(data[split]["tokens"], args.length) for split in ("train", "test"))
    results = []
    for name, relative in (("relative", True), ("absolute", False)):
        start = time.process_time()
        torch.manual_seed(args.seed)
        model = MusicTransformer(VOCABULARY_SIZE, relative=relative)
        fit(model, in_random_keys(train, args.batch_size), args)
        loss, seconds = float(evaluate(model, test).mean()), time.process_time() - start
        results.append(f"{name} {loss:.3f} a note, {VOICES * loss:.2f} a step, {seconds:.0f} s")
    yield f"test nats: {'; '.join(results)} of CPU time; seed {args.seed}"


def cut(chorales: list[list[int]], length: int) -> Tensor:
    """Cut chorales into pieces of ``length`` tokens and the one after: ``[N, length + 1]``.

    Each piece begins before a soprano's note. What is past the end has no target.
    """
    pieces = [
        torch.tensor(tokens[start : start + length + 1])
        for tokens in chorales
        for start in range(0, len(tokens) - 1, length)
    ]
    return torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True, padding_value=NO_TARGET)


def in_random_keys(pieces: Tensor, size: int) -> Iterator[Tensor]:
    """Yield batches of random pieces in random keys, without end."""
    while True:
        tokens = pieces[torch.randint(len(pieces), (size,))]
        shift = torch.tensor(SHIFTS)[torch.randint(len(SHIFTS), (size, 1))]
        sounds = (tokens >= 0) & (tokens < PITCHES)
        yield torch.where(sounds, tokens + shift, tokens)


if __name__ == "__main__":
    main()
