"""Train a language model with area attention on Tiny Shakespeare.

``python -m examples.area_transformer --data-dir DIR`` prints one line: the bits that the model
needs for each character of the tenth of the text that it was not trained on. ``--max-width 1`` is
ordinary attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from examples.byte_models import BYTES, ByteOptions, train
from examples.options import example, option
from models.area_transformer import AreaTransformer


@dataclass
class Options(ByteOptions):
    """What is asked for."""

    length: int = option("bytes of a piece", 128)
    steps: int = 400
    batch_size: int = 16
    learning_rate: float = 3e-3
    max_width: int = option("longest span", 3)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train and measure; yield the result in one line."""
    _, said = train(lambda: AreaTransformer(BYTES, args.max_width), args)
    yield f"validation: {said}, spans of up to {args.max_width}; seed {args.seed}"


if __name__ == "__main__":
    main()
