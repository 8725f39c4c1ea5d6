"""Longformer's and BigBird's patterns, as unions."""

from __future__ import annotations

from jat_graph.patterns.base import Union, check_count
from jat_graph.patterns.blocks import LocalBlocks, RandomBlocks
from jat_graph.patterns.positions import GlobalTokens, Window


def longformer(attention_window: int = 512, num_global: int = 1) -> Union:
    """Return Longformer's pattern: a window, and global tokens at the start.

    Args:
        attention_window: Keys in the window, half on each side, the token itself not counted, as
            in ``LongformerConfig``. (default: 512)
        num_global: How many of the first tokens are global. (default: 1)

    Returns:
        ``window:257+global:1``, if nothing is given.

    Raises:
        ValueError: If a number does not fit.

    Reference:
        Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1.
    """
    check_count("attention_window", attention_window)
    if attention_window % 2:
        raise ValueError(f"attention_window must be even, got {attention_window}")
    return Union(Window(attention_window // 2 + 1), GlobalTokens(num_global))


def bigbird(block_size: int = 64, num_random_blocks: int = 3, seed: int = 0) -> Union:
    """Return BigBird's pattern: the own block and its neighbours, a global one, random ones.

    transformers' BigBird makes the last block of the padded input global, too; here only the first
    is, so that a pattern does not depend on what follows. The random graph is that of
    :class:`RandomBlocks`.

    Args:
        block_size: Tokens in a block. (default: 64)
        num_random_blocks: Random blocks that each one draws. (default: 3)
        seed: Of the random blocks. (default: 0)

    Returns:
        ``local:64:both+global:64+random:64:3``, if nothing is given.

    Raises:
        ValueError: If a number does not fit.

    Reference:
        Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", section 2; the names are
        those of ``BigBirdConfig``.
    """
    return Union(
        LocalBlocks(block_size, "both"),
        GlobalTokens(block_size),
        RandomBlocks(block_size, num_random_blocks, seed),
    )
