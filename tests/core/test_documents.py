"""Packed documents: what a mask is taken for, as attention by clusters shows it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jat_graph import clustered_attention
from tests.support import assert_equal, random_tensors

SETTINGS = {"keys": 2, "size": 2, "segment": 4, "dense_below": 0}
HEADS = random_tensors(0, *[(2, 2, 12, 4)] * 3)


def read(mask: Tensor | None) -> Tensor:
    return clustered_attention(*HEADS, attention_mask=mask, **SETTINGS)


def pairs_of(documents: Tensor) -> Tensor:
    """Return which tokens see which, [B, 1, L, L]; a document below 0 is padding."""
    return ((documents[:, :, None] == documents[:, None]) & (documents >= 0)[:, None])[:, None]


@given(names=st.lists(st.integers(-1, 3), min_size=24, max_size=24), seed=st.integers(0, 999))
def test_each_document_is_read_as_if_it_were_alone_whatever_padded_queries_see(names, seed):
    documents = torch.tensor(names).view(2, 12)
    generator = torch.Generator().manual_seed(seed)
    anything = torch.rand(2, 1, 12, 12, generator=generator) < 0.5
    padded = (documents < 0)[:, None, :, None]
    mask = pairs_of(documents) | (padded & anything & (documents >= 0)[:, None, None])
    output = read(mask)
    assert not output.masked_select((documents < 0)[:, None, :, None]).any()
    for b in range(2):
        for name in documents[b].clamp(min=0).unique().tolist():
            own = documents[b] == name
            if own.any():
                alone = [x[b : b + 1, :, own] for x in HEADS]
                assert_equal(output[b, :, own], clustered_attention(*alone, **SETTINGS)[0])


def test_one_document_is_no_mask_and_one_with_padding_is_padding():
    assert torch.equal(read(torch.ones(1, 1, 12, 12).bool()), read(None))
    valid = torch.arange(12).expand(2, -1) < torch.tensor([[12], [7]])
    assert torch.equal(read(pairs_of(valid.int() - 1)), read(valid))


def window(width: int) -> Tensor:
    place = torch.arange(12)
    return ((place[:, None] - place).abs() < width)[None, None]


@pytest.mark.parametrize(
    ("mask", "got"),
    [
        (window(3), "another rule"),
        (pairs_of(torch.arange(12)[None] // 4).tril(), "another rule"),
        (pairs_of(torch.arange(12)[None] // 4) | window(2), "another rule"),
        (pairs_of(torch.arange(12)[None] // 4) & ~torch.eye(12).bool(), "another rule"),
        (pairs_of(torch.arange(12)[None] // 6).expand(2, 2, -1, -1), "one for each"),
        (torch.randn(2, 1, 12, 12), "biases"),
        (torch.randn(2, 12), "biases"),
    ],
)
def test_what_is_neither_padding_nor_documents_is_refused(mask, got):
    with pytest.raises(ValueError, match=rf"attention_mask must be .*got {got}"):
        read(mask)
