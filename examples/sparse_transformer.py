"""Train a Sparse Transformer on the characters of Tiny Shakespeare.

``python -m examples.sparse_transformer --data-dir DIR`` trains on random pieces of the first nine
tenths of the text and prints one line: the bits that the model needs for a character of the rest,
read in pieces of the length it was trained on. ``--pattern fixed:16:2`` has the other kind of
heads, ``--pattern causal`` is the same model with dense heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch.optim.lr_scheduler import OneCycleLR

from examples.byte_models import BYTES, ByteOptions, train
from examples.options import example, option
from jat_graph.patterns import parse_pattern, reaches_all
from models.sparse_transformer import SparseTransformer


@dataclass
class Options(ByteOptions):
    """What is asked for."""

    steps: int = 500
    batch_size: int = 12
    learning_rate: float = 3e-3
    pattern: str = option("which tokens heads read", "strided:16")


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train and measure; yield the result in one line."""
    pattern = parse_pattern(args.pattern)
    _, said = train(lambda: SparseTransformer(BYTES, pattern, args.length), args, OneCycleLR)
    edges = sum(pattern.num_edges(args.length, head) for head in range(pattern.period))
    share = edges / pattern.period / args.length**2
    reach = "do" if reaches_all(pattern, args.length, 2) else "do not"
    yield (
        f"validation: {said}; heads read {share:.0%} of all pairs, two layers {reach} connect "
        f"every token with all before it; seed {args.seed}"
    )


if __name__ == "__main__":
    main()
