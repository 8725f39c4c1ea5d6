"""Train a language model with memory-compressed attention, T-DMCA, on Tiny Shakespeare.

``python -m examples.memory_compressed --data-dir DIR`` prints one line: the bits that the model
needs for each character of the tenth of the text that it was not trained on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from examples.byte_models import BYTES, ByteOptions, train
from examples.options import example, option
from models.memory_compressed import MemoryCompressedModel


@dataclass
class Options(ByteOptions):
    """What is asked for."""

    block: int = option("tokens of a block of the local layers", 64)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train and measure; yield the result in one line."""
    _, said = train(lambda: MemoryCompressedModel(BYTES, block=args.block), args)
    yield f"validation: {said}; seed {args.seed}"


if __name__ == "__main__":
    main()
