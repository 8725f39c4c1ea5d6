"""Train a language model with memory-compressed attention, T-DMCA, on Tiny Shakespeare.

``python -m examples.memory_compressed --data-dir DIR`` prints one line: the bits that the model
needs for each character of the tenth of the text that it was not trained on.
"""

from __future__ import annotations

import argparse
import time

import torch

from examples.byte_models import BYTES, bits_per_character, byte_parser, fit, load_bytes, say
from models.memory_compressed import MemoryCompressedModel


def main() -> None:
    """Train the model, or say in one line what does not fit."""
    parser = byte_parser(__doc__, length=256, steps=1000, batch_size=8, learning_rate=5e-3)
    parser.add_argument("--block", type=int, default=64, help="local block (default: 64)")
    args = parser.parse_args()
    say("memory_compressed", lambda: run(args))


def run(args: argparse.Namespace) -> str:
    """Train and measure; return the result in one line."""
    train, test = load_bytes(args.data_dir, args.length)
    start = time.process_time()
    torch.manual_seed(args.seed)
    model = MemoryCompressedModel(vocabulary_size=BYTES, block=args.block)
    fit(model, train, args)
    bits = bits_per_character(model, test, args.length)
    seconds = time.process_time() - start
    return f"validation: {bits:.3f} bits a character, {seconds:.0f} s of CPU time; seed {args.seed}"


if __name__ == "__main__":
    main()
