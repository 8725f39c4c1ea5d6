"""Train a language model with area attention on Tiny Shakespeare.

``python -m examples.area_transformer --data-dir DIR`` prints one line: the bits that the model
needs for each character of the tenth of the text that it was not trained on. ``--max-width 1`` is
ordinary attention.
"""

from __future__ import annotations

import argparse
import time

import torch

from examples.byte_models import BYTES, bits_per_character, byte_parser, fit, load_bytes, say
from models.area_transformer import AreaTransformer


def main() -> None:
    """Train the model, or say in one line what does not fit."""
    parser = byte_parser(__doc__, length=128, steps=400, batch_size=16, learning_rate=3e-3)
    parser.add_argument("--max-width", type=int, default=3, help="longest span (default: 3)")
    args = parser.parse_args()
    say("area_transformer", lambda: run(args))


def run(args: argparse.Namespace) -> str:
    """Train and measure; return the result in one line."""
    start = time.perf_counter()
    train, test = load_bytes(args.data_dir, args.length)
    torch.manual_seed(args.seed)
    model = AreaTransformer(vocabulary_size=BYTES, max_width=args.max_width)
    fit(model, train, args)
    bits = bits_per_character(model, test, args.length)
    seconds = time.perf_counter() - start
    return (
        f"validation: {bits:.3f} bits a character, spans of up to {args.max_width}, "
        f"{seconds:.0f} s; seed {args.seed}"
    )


if __name__ == "__main__":
    main()
