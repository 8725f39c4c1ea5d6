"""Calls that jump heads cannot follow are refused, and generation without a cache works."""

import gc
import weakref

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import jat_graph.hf  # noqa: F401  # registers it
from tests.hf.models import LENGTH, assert_joins, run, tiny_inputs, tiny_jump_model

FORWARD = ALL_ATTENTION_FUNCTIONS["jat"]


@pytest.mark.parametrize("name", ["softcap", "position_bias", "cache", "s_aux", "sinks", "indices"])
def test_arguments_that_change_scores_are_refused(name: str) -> None:
    module = tiny_jump_model("bert").encoder.layer[0].attention.self
    query, key, value = torch.randn(3, 1, 4, LENGTH, 8).unbind()
    FORWARD(module, query, key, value, None, **{name: None})
    with pytest.raises(ValueError, match=f"BertSelfAttention passes {name}, which heads of"):
        FORWARD(module, query, key, value, None, **{name: torch.ones(1)})


def test_another_number_of_heads_is_refused() -> None:
    module = tiny_jump_model("bert").encoder.layer[0].attention.self
    query = torch.randn(1, 3, LENGTH, 8)
    with pytest.raises(ValueError, match=r"must have 4 heads.* got 3"):
        FORWARD(module, query, query, query, None)


def given(length: int, odd: bool = False) -> Tensor:
    """Return a mask of padding, or one that is neither padding nor causal."""
    valid = (torch.arange(LENGTH) < length).expand(3, 1, LENGTH, -1)
    return valid | torch.eye(LENGTH, dtype=torch.bool) if odd else valid.clone()


@pytest.mark.parametrize("inference", [False, True])
def test_a_mask_that_was_written_to_is_read_anew(inference: bool) -> None:
    model, ids = tiny_jump_model("bert"), tiny_inputs("bert")["input_ids"]
    with torch.inference_mode(inference):
        mask = given(7)
        first = run(model, {"input_ids": ids, "attention_mask": mask})
        mask[:] = given(9)
        got = run(model, {"input_ids": ids, "attention_mask": mask})
        assert torch.equal(got, run(model, {"input_ids": ids, "attention_mask": given(9)}))
        assert not torch.equal(got, first)


@pytest.mark.parametrize("odd", [False, True])
def test_a_mask_is_not_kept_alive(odd: bool) -> None:
    mask = given(7, odd)
    run(tiny_jump_model("bert"), tiny_inputs("bert") | {"attention_mask": mask})
    alive = weakref.ref(mask)
    del mask
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("tokens", [1, 3])
def test_the_last_queries_alone_are_refused(tokens: int) -> None:
    module = tiny_jump_model("gpt2").transformer.h[1].attn
    query, key = torch.randn(1, 4, tokens, 8), torch.randn(1, 4, LENGTH, 8)
    with pytest.raises(ValueError, match=f"use_cache=False.* .got {tokens} queries for 12 keys"):
        FORWARD(module, query, key, key, None)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("additive", [False, True])
def test_a_mask_of_the_callers_own(name: str, side: str, additive: bool) -> None:
    model, inputs = tiny_jump_model(name), tiny_inputs(name, (LENGTH, 7), side=side)
    assert_joins(model, inputs)
    valid = inputs.pop("attention_mask").bool()
    mask = valid[:, None, None, :].expand(-1, 1, LENGTH, -1)
    if name != "bert":
        mask = mask & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    given = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    got = run(model, inputs | {"attention_mask": given if additive else mask})
    wanted = run(model, inputs | {"attention_mask": valid.long()})
    assert_close(got[valid], wanted[valid], rtol=0, atol=1e-5)


def test_biases_of_an_additive_mask_do_not_vote() -> None:
    model, inputs = tiny_jump_model("bert"), tiny_inputs("bert")
    bias = torch.linspace(-1, 1, LENGTH).expand(3, 1, LENGTH, LENGTH)
    plain = run(model, inputs)
    (first, *_) = assert_joins(model, inputs | {"attention_mask": bias})
    assert first.mask.pairs is None
    assert first.mask.bias is not None
    assert not torch.allclose(run(model, inputs | {"attention_mask": bias}), plain, atol=1e-3)
    shifted = run(model, inputs | {"attention_mask": torch.full_like(bias, 0.5).contiguous()})
    assert_close(shifted, plain, rtol=0, atol=1e-5)  # softmax does not see a constant
