"""Block self-attention, and its parts, against the oracle, with padding on every side."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from models import biblosa
from models.biblosa import BiBloSAN, BlockSelfAttention, SourceToToken, least_memory
from tests.inputs import random_padding_mask
from tests.nn.support import assert_finite_without_tokens, assert_same, features
from tests.oracles.blocks import (
    reference_block_attention,
    reference_block_length,
    reference_source_to_token,
)
from tests.support import assert_equal, assert_within_budget

CHANNELS, HIDDEN = 3, 4
LENGTHS = [1, 2, 5, None]


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return 2 * features(*shape, width=CHANNELS, seed=seed)


def make_layer(block_length: int | None = 2, dropout: float = 0.0) -> BlockSelfAttention:
    torch.manual_seed(0)
    return BlockSelfAttention(CHANNELS, HIDDEN, block_length, dropout).double()


def oracle(layer: BlockSelfAttention, x: Tensor) -> Tensor:
    """The layer on one sequence without padding."""
    ways = ((layer.forward_blocks, False), (layer.backward_blocks, True))
    parts = [
        reference_block_attention(
            x, dict(way.named_parameters()), block_length=layer.block_length, backward=backward
        )
        for way, backward in ways
    ]
    return torch.cat(parts, dim=-1)


@pytest.mark.parametrize("block_length", LENGTHS)
@pytest.mark.parametrize("length", [1, 2, 7, 12])
def test_values_and_gradients_are_the_oracles(length, block_length):
    layer, x = make_layer(block_length), tokens(length).requires_grad_()
    assert_same(layer(x[None])[0], oracle(layer, x), (x, *layer.parameters()))


@given(
    block_length=st.sampled_from(LENGTHS),
    side=st.sampled_from(["left", "right", "scattered"]),
    length=st.integers(2, 14),
    seed=st.integers(0, 99),
)
def test_padding_changes_nothing_whatever_it_holds(block_length, side, length, seed):
    layer = make_layer(block_length)
    mask = random_padding_mask(3, length, side=side, min_valid=1, seed=seed)
    x = tokens(3, length, seed=seed).masked_fill(~mask.unsqueeze(-1), torch.nan)
    got = layer(x, mask)
    assert not got[~mask].any()
    for row, valid, out in zip(x, mask, got, strict=True):
        assert_equal(out[valid], oracle(layer, row[valid]))


def test_a_sequence_of_padding_gives_zeros_and_finite_gradients():
    assert_finite_without_tokens(make_layer(None), tokens(2, 5))


@given(side=st.sampled_from(["left", "right", "scattered"]), seed=st.integers(0, 99))
def test_a_sequence_becomes_one_token_as_the_oracle_says(side, seed):
    torch.manual_seed(0)
    layer = SourceToToken(CHANNELS).double()
    mask = random_padding_mask(3, 6, side=side, seed=seed)
    x = tokens(3, 6, seed=seed).masked_fill(~mask.unsqueeze(-1), torch.nan)
    got = layer(x, mask)
    weights = dict(layer.named_parameters())
    for row, valid, out in zip(x, mask, got, strict=True):
        assert_equal(out, reference_source_to_token(row[valid], weights))
    assert not layer(x, torch.zeros_like(mask)).any()


@pytest.mark.parametrize(
    "counts", [range(1, 3000), (r**3 // 2 + d for r in (200, 999) for d in (0, 1))]
)
def test_the_block_length_is_exact(counts):
    for count in counts:
        assert int(least_memory(torch.tensor(count))) == reference_block_length(count), count


def test_single_precision_is_within_its_budget():
    layer, x = make_layer(3), tokens(11)
    single = make_layer(3).float()
    truth = oracle(layer, x.float().double())
    assert_within_budget(single(x.float()[None])[0], oracle(single, x.float()), truth, ulps=16)


@pytest.mark.parametrize("wide", [False, True], ids=["as on the CPU", "as on CUDA"])
def test_bfloat16_autocast(monkeypatch, wide):
    if wide:  # autocast's softmax gives float32 there
        wrapped = biblosa.softmax_where
        monkeypatch.setattr(biblosa, "softmax_where", lambda *a: wrapped(*a).float())
    layer, x = make_layer().float(), tokens(2, 11).float()
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(x)
    assert got.dtype == torch.bfloat16
    assert_close(got.float(), layer(x), rtol=0, atol=0.05)


def test_the_classifier_reads_all_words_of_a_sentence_and_no_padding():
    torch.manual_seed(0)
    model = BiBloSAN(9, 2, channels=8, hidden_channels=8, block_length=4).double().eval()
    words, mask = torch.randint(9, (3, 11)), random_padding_mask(3, 11, side="left", seed=1)
    logits = model(words, mask)
    for row, valid, out in zip(words, mask, logits, strict=True):
        assert_equal(model(row[None, valid]), out[None])
        for place in valid.nonzero():
            changed = row.clone()
            changed[place] = (changed[place] + 1) % 9
            assert not torch.allclose(model(changed[None, valid]), out[None], atol=1e-9)


def test_a_block_has_tokens():
    with pytest.raises(ValueError, match="block_length"):
        make_layer(0)
