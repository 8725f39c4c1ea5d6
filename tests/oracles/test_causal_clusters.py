"""Clusters in causal order, token by token: nothing later counts."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.oracles import causal_landmarks, reference_causal_clusters

seeds = st.integers(0, 9999)
lengths = st.integers(1, 70)
blocks = st.sampled_from((1, 2, 4, 7, 16))
numbers = st.sampled_from((0, 1, 3, 100))  # of best keys


def random_heads(seed: int, length: int) -> list[Tensor]:
    """Gaussian queries, keys and values of two heads, [2, n, 4] each."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(3, 2, length, 4, generator=generator, dtype=torch.float64)
    return [x.requires_grad_() for x in drawn]


def by_tokens(heads: list[Tensor], **settings: int) -> Tensor:
    """Return what each token reads, all of it computed anew."""
    return reference_causal_clusters(*(x[None] for x in heads), **settings)[0]


def assert_close(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def test_landmarks_are_a_beginning_of_the_same_positions() -> None:
    assert causal_landmarks(21).tolist() == [1, 2, 4, 6, 9, 12, 16, 20]
    assert causal_landmarks(1).tolist() == []
    assert len(causal_landmarks(10_000)) == 198  # t = 2, …, 199


@torch.no_grad()
@given(seed=seeds, length=lengths, block=blocks, keys=numbers)
def test_no_later_token_counts_to_the_bit(seed, length, block, keys):
    heads, settings = random_heads(seed, length), {"keys": keys, "block": block}
    first = 1 + length // 2
    other = [x.clone() for x in heads]
    for x in other:
        x[:, first:] = torch.randn_like(x[:, first:])
    want = by_tokens(heads, **settings)[:, :first]
    assert torch.equal(by_tokens(other, **settings)[:, :first], want)
    assert_close(by_tokens([x[:, :first] for x in heads], **settings), want)


@given(seed=seeds, length=lengths, block=blocks)
def test_where_all_is_read_exactly_it_is_causal_attention(seed, length, block):
    heads = random_heads(seed, length)
    want = F.scaled_dot_product_attention(*heads, is_causal=True)
    assert_close(by_tokens(heads, keys=100, block=block), want)
    first = 2 * block
    assert_close(by_tokens(heads, keys=0, block=block)[:, :first], want[:, :first])
