"""Train a Sparse Transformer on the characters of Tiny Shakespeare.

``python -m examples.sparse_transformer --data-dir DIR`` trains on random pieces of the first nine
tenths of the text and prints one line: the bits that the model needs for a character of the rest,
read in pieces of the length it was trained on. ``--pattern fixed:16:2`` has the other kind of
heads, ``--pattern causal`` is the same model with dense heads.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.optim.lr_scheduler import OneCycleLR

from examples.byte_models import BYTES, bits_per_character, byte_parser, fit, load_bytes, say
from jat_graph.patterns import parse_pattern, reaches_all
from models.sparse_transformer import SparseTransformer


def main() -> None:
    """Train the model, or say in one line what does not fit."""
    parser = byte_parser(__doc__, length=256, steps=500, batch_size=12, learning_rate=3e-3)
    parser.add_argument("--pattern", default="strided:16", help="(default: strided:16)")
    args = parser.parse_args()
    say("sparse_transformer", lambda: run(args))


def run(args: argparse.Namespace) -> str:
    """Train and measure; return the result in one line."""
    pattern = parse_pattern(args.pattern)
    train, test = load_bytes(args.data_dir, args.length)
    start = time.perf_counter()
    torch.manual_seed(args.seed)
    model = SparseTransformer(BYTES, pattern, args.length)
    fit(model, train, args, OneCycleLR)
    bits = bits_per_character(model, test, args.length)
    edges = sum(pattern.num_edges(args.length, head) for head in range(pattern.period))
    share = edges / pattern.period / args.length**2
    reach = "do" if reaches_all(pattern, args.length, 2) else "do not"
    return (
        f"validation: {bits:.3f} bits a character, {time.perf_counter() - start:.0f} s; "
        f"heads read {share:.0%} of all pairs, two layers {reach} connect every token "
        f"with all before it; seed {args.seed}"
    )


if __name__ == "__main__":
    main()
