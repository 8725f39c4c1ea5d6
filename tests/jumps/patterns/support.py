"""What the tests of patterns share: every pattern of small sizes, with the rule that it follows."""

from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.patterns import Documents, Pattern, parse_pattern

SIZES = st.integers(1, 12)
SIMPLE = ("window:{}", "global:{}", "causal", "local:{}", "local:{}:left", "local:{}:both")
WIDE = ("dilated:{}:{}", "random:{}:{}:3")
FACTORISED = (
    *("strided:{}", "strided:{}:merged", "strided:{}:turns:3", "strided:{}:merged:4"),
    *("fixed:{}", "fixed:{}:1:merged", "fixed:{}:1:turns:3", "fixed:{}:1:merged:3"),
)
KINDS = SIMPLE + WIDE + FACTORISED


class Heads(NamedTuple):
    """Queries, keys and values."""

    query: Tensor
    key: Tensor
    value: Tensor


def random_heads(
    length: int, *, heads: int = 3, widths: tuple[int, int] = (4, 5), dtype: torch.dtype
) -> Heads:
    """Return random heads of two sequences, with gradients."""
    generator = torch.Generator().manual_seed(length)
    width, value_width = widths
    return Heads(
        *(
            torch.randn(2, heads, length, size, generator=generator, dtype=torch.float64)
            .to(dtype)
            .requires_grad_()
            for size in (width, width, value_width)
        )
    )


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    """Draw one pattern of any kind, or a union or an intersection of two."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2))
    specs = [kind.format(draw(SIZES), draw(st.integers(1, 5))) for kind in kinds]
    return parse_pattern(draw(st.sampled_from(("+", "&"))).join(specs))


def all_pairs(pattern: Pattern, length: int, heads: int = 1) -> Tensor:
    """Return the pairs that the pattern itself gives, ``[B, H, L, L]``."""
    sequences = max(1, pattern.num_sequences)
    batch, head = torch.arange(sequences)[:, None, None, None], torch.arange(heads)[:, None, None]
    places = torch.arange(length)
    rows = pattern.mask_mod(batch, head, places[:, None], places)
    return rows.expand(sequences, heads, length, length)


def packed(length: int, batch: int = 2) -> Documents:
    """Return documents of random lengths, other ones in each sequence."""
    generator = torch.Generator().manual_seed(length)
    starts = torch.rand(batch, length, generator=generator) < 0.1
    return Documents(starts.long().cumsum(-1))
