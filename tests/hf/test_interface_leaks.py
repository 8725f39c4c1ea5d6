"""In a decoder, no earlier output depends on a later token."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.hf.decoders import RULES, SIDES, prepared
from tests.hf.models import (
    DECODERS,
    LENGTH,
    PAD,
    VOCABULARY,
    assert_joins,
    run,
    tiny_inputs,
    tiny_jump_model,
)


def prefix(name: str) -> str:
    """Name the inputs of the decoder."""
    return "decoder_" if name == "bart" else ""


def cut(name: str, inputs: dict[str, Tensor], end: int) -> dict[str, Tensor]:
    """Return the decoder's inputs up to a token; BART's encoder keeps all of its own."""
    mine = "decoder_" if name == "bart" else ""
    return {key: value[:, :end] if key.startswith(mine) else value for key, value in inputs.items()}


@pytest.mark.parametrize(("lengths", "side"), SIDES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", DECODERS)
def test_changing_later_tokens_changes_no_earlier_bit(
    name: str, rule: dict[str, Any], lengths: tuple[int, ...], side: str
) -> None:
    model, inputs, output = prepared(name, rule, lengths, side)
    ids = inputs[f"{prefix(name)}input_ids"]
    for token in range(1, LENGTH):
        other = (ids - 3 + 7) % (VOCABULARY - 3) + 3  # another token of the vocabulary
        later = torch.arange(LENGTH) >= token
        changed = torch.where(later & (ids != PAD), other, ids)
        got = run(model, inputs | {f"{prefix(name)}input_ids": changed})
        assert torch.equal(got[:, :token], output[:, :token])
        assert not torch.equal(got[:, token], output[:, token])


@pytest.mark.parametrize(("lengths", "side"), SIDES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", DECODERS)
def test_cutting_after_a_token_changes_nothing_before(
    name: str, rule: dict[str, Any], lengths: tuple[int, ...], side: str
) -> None:
    model, inputs, output = prepared(name, rule, lengths, side)
    mask = inputs.get(f"{prefix(name)}attention_mask", torch.ones(len(lengths), LENGTH)).bool()
    for end in range(1, LENGTH):
        got = run(model, cut(name, inputs, end))
        valid = mask[:, :end]
        assert_close(got[valid], output[:, :end][valid], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_mask_that_hides_nothing_changes_nothing(name: str) -> None:
    model, inputs = tiny_jump_model(name), tiny_inputs(name)
    assert_joins(model, inputs)
    ones = torch.ones_like(inputs["input_ids"])
    assert torch.equal(run(model, inputs | {"attention_mask": ones}), run(model, inputs))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_packed_documents_do_not_see_each_other(name: str) -> None:
    model, inputs = tiny_jump_model(name), tiny_inputs(name)
    first, second = 5, LENGTH - 5
    position = torch.cat([torch.arange(first), torch.arange(second)]).expand(3, -1)
    packed = run(model, inputs, position_ids=position, use_cache=False)
    alone = run(model, {"input_ids": inputs["input_ids"][:, first:]})
    assert_close(packed[:, first:], alone, rtol=0, atol=1e-5)
    joined = assert_joins(model, inputs | {"position_ids": position, "use_cache": False})
    assert all(layer.mask.pairs is not None for layer in joined)
