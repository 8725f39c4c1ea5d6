"""Calls that jump heads cannot follow are refused, and generation without a cache works."""

from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from torch.testing import assert_close

from jat_graph.hf import disabled
from jat_graph.hf.interface import jat_attention_forward
from tests.hf.models import LENGTH, assert_joins, run, tiny_inputs, tiny_jump_model, tiny_model


@pytest.mark.parametrize("name", ["softcap", "position_bias", "cache", "s_aux", "sinks", "indices"])
def test_arguments_that_change_scores_are_refused(name: str) -> None:
    module = tiny_jump_model("bert").encoder.layer[0].attention.self
    query, key, value = torch.randn(3, 1, 4, LENGTH, 8).unbind()
    jat_attention_forward(module, query, key, value, None, **{name: None})
    with pytest.raises(ValueError, match=f"BertSelfAttention passes {name}, which our heads"):
        jat_attention_forward(module, query, key, value, None, **{name: torch.ones(1)})


def test_a_module_that_was_never_attached_is_refused() -> None:
    module = tiny_model("bert").encoder.layer[0].attention.self
    query = torch.randn(1, 4, LENGTH, 8)
    with pytest.raises(ValueError, match=r"jat_graph\.from_pretrained"):
        jat_attention_forward(module, query, query, query, None)


def test_another_number_of_heads_is_refused() -> None:
    module = tiny_jump_model("bert").encoder.layer[0].attention.self
    query = torch.randn(1, 3, LENGTH, 8)
    with pytest.raises(ValueError, match=r"must have 4 heads .* got 3"):
        jat_attention_forward(module, query, query, query, None)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_cache_at_full_length_is_exact(name: str) -> None:
    model, inputs = tiny_jump_model(name), tiny_inputs(name)
    assert_joins(model, inputs)
    with_cache = run(model, inputs, use_cache=True)
    assert torch.equal(with_cache, run(model, inputs, use_cache=False))


@pytest.mark.parametrize("tokens", [1, 3])
def test_the_last_queries_alone_are_refused(tokens: int) -> None:
    module = tiny_jump_model("gpt2").transformer.h[1].attn
    query, key = torch.randn(1, 4, tokens, 8), torch.randn(1, 4, LENGTH, 8)
    with pytest.raises(ValueError, match=f"use_cache=False.* .got {tokens} queries for 12 keys"):
        jat_attention_forward(module, query, key, key, None)


def greedy(model: hf.PreTrainedModel, inputs: dict[str, Tensor], steps: int) -> Tensor:
    """Generate by whole forwards."""
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask
    for _ in range(steps):
        position = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = run(model, {"input_ids": ids, "attention_mask": mask, "position_ids": position})
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=-1)
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=-1)
    return ids


@pytest.mark.parametrize("lengths", [(LENGTH, LENGTH), (LENGTH, 7)])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generation_without_a_cache(name: str, lengths: tuple[int, ...]) -> None:
    model, inputs = tiny_jump_model(name), tiny_inputs(name, lengths, side="left")
    assert_joins(model, inputs)
    settings: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    inputs = {key: inputs[key] for key in ("input_ids", "attention_mask") if key in inputs}
    inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    got = model.generate(**inputs, use_cache=False, **settings)
    assert torch.equal(got, greedy(model, inputs, 5))
    with disabled(model):
        cached = model.generate(**inputs, use_cache=True, **settings)
        assert torch.equal(cached, greedy(model, inputs, 5))


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
