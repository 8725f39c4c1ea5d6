"""Models with jump heads: the base where nothing jumps, the reference where something does."""

import gc
import math
import sys
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from jat_graph import JatConfig
from jat_graph.hf import attach, detach, disabled
from tests.hf.models import (
    ARCHITECTURES,
    LENGTH,
    PADDINGS,
    TEXT,
    assert_joins,
    assert_padding_changes_nothing,
    main_output,
    reference_rows,
    run,
    tiny_config,
    tiny_inputs,
    tiny_jump_model,
    tiny_model,
)
from tests.support import count_operations, sdpa_kernels

IDENTITIES = [
    pytest.param({"hop_weights": (1.0,)}, id="one hop of length 0"),
    pytest.param({"threshold": math.inf, "hop_weights": (0.0, 1.0)}, id="nothing joins"),
    pytest.param({"threshold": math.inf, "heads": 4}, id="nothing joins in any head"),
]


def on(device: torch.device, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.to(device) for name, value in inputs.items()}


def assert_short(forward: Callable[[], Any], files: int, functions: int) -> None:
    """Assert that a forward, all of it in this thread, goes through few files and functions."""
    called, threads = set[tuple[str, str, int]](), torch.get_num_threads()

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and "/jat_graph/" in code.co_filename and "<" not in code.co_name:
            called.add((code.co_filename, code.co_name, code.co_firstlineno))

    torch.set_num_threads(1)
    sys.setprofile(note)
    forward()
    sys.setprofile(None)
    torch.set_num_threads(threads)
    assert 2 < len({file for file, *_ in called}) <= files and len(called) <= functions


@pytest.mark.parametrize("config", [JatConfig.paper(threshold=0.5), JatConfig.stones()])
def test_a_forward_is_a_short_way_through_the_library(config):
    model, inputs = attach(tiny_model("bert"), config), tiny_inputs("bert")
    for name, parameter in model.named_parameters():
        if name.endswith("strength.theta"):
            torch.nn.init.normal_(parameter)
    run(model, inputs)
    assert_short(lambda: run(model, inputs), 15, 75)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_by_name_it_is_shorter_for_a_text_and_for_a_token(name):
    model = tiny_model(name, max_position_embeddings=800)
    # Levels, and dense tokens.
    model.config.clustered = {"dense_below": 300, "keys": 32, "groups": 1, "segment": 64}
    model.set_attn_implementation("clustered")
    inputs = {"input_ids": torch.arange(700)[None] % 20 + 5}
    with torch.no_grad(), count_operations() as seen:
        run(model, inputs)
        cache = model(**inputs).get("past_key_values")
    assert_short(lambda: run(model, inputs), 12, 60)
    if name == "bert":
        assert seen["jat_graph.read_tree.default"] == 2 * len(model.encoder.layer)
    else:
        assert_short(lambda: run(model, inputs, use_cache=False), 12, 60)
        token = {"input_ids": inputs["input_ids"][:, :1], "past_key_values": cache}
        run(model, token)
        assert_short(lambda: run(model, token), 12, 60)
        assert {layer.pasts[0][1].kept[0][0].tree.clusters for layer in cache.layers} == {9 * 8}


@pytest.mark.slow
@pytest.mark.parametrize(("lengths", "side"), PADDINGS)
@pytest.mark.parametrize("overrides", IDENTITIES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_where_nothing_jumps_the_model_is_its_base_to_the_bit(
    name, overrides, lengths, side, device
):
    model, inputs = tiny_model(name).to(device), on(device, tiny_inputs(name, lengths, side=side))
    base = run(model, inputs)
    attach(model, tiny_config(**overrides))
    assert torch.equal(run(model, inputs), base)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_dropout_draws_what_the_base_draws(name):
    rates = {"attention_dropout": 0.3} if name == "llama" else {}
    model, inputs = tiny_model(name, **rates).train(), tiny_inputs(name)
    torch.manual_seed(5)
    base = run(model, inputs)
    attach(model, tiny_config(threshold=math.inf))
    torch.manual_seed(5)
    assert torch.equal(run(model, inputs), base)
    torch.manual_seed(6)
    assert not torch.equal(run(model, inputs), base)


KINDS: dict[str, dict[str, Any]] = {
    "pairs": {},
    "pattern": {"pattern": "window:3+global:1"},
    "stones": {"graph": "stones", "threshold": 1.0, "strength": 0.5, "excluded_token_ids": (17,)},
}
PADDED = [
    (kind, name, side)
    for kind in KINDS
    for name in TEXT
    for side in ("left", "right")
    # BART's positions count padding on the left; stones are for layers that see all.
    if (name, side) != ("bart", "left") and (kind, name) != ("stones", "modernbert")
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "side"), PADDED)
def test_padding_changes_no_valid_token(kind, name, side, device):
    model, lengths = tiny_jump_model(name, **KINDS[kind]).double().to(device), (LENGTH, 9, 1)
    inputs = on(device, tiny_inputs(name, lengths, side=side, padded_to=LENGTH + 3))
    if kind == "pairs":
        assert_joins(model, inputs)
    assert_padding_changes_nothing(model, inputs, lengths, side, 1e-8)  # angles are in float32


@pytest.mark.parametrize("hop_weights", [(0.0, 1.0), (0.0, 0.0, 1.0), (0.5, 0.5)])
@pytest.mark.parametrize("lengths", [(LENGTH, LENGTH), (LENGTH, 7)])
def test_jump_heads_and_ordinary_ones_take_one_fast_call_each(hop_weights, lengths):
    model, inputs = tiny_jump_model("bert", hop_weights=hop_weights), tiny_inputs("bert", lengths)
    assert_joins(model, inputs)
    with count_operations() as seen:
        run(model, inputs)
    assert sdpa_kernels(seen) == {"flash"}
    assert seen["aten._scaled_dot_product_flash_attention_for_cpu.default"] == 3 * 2  # layers


def test_the_pretrained_model(plain, tokenizer):
    texts = ["Book costs more than pencil. Book costs less than computer.", "Keys."]
    inputs = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    base = run(plain, inputs)
    heads = (8, 9, 10)  # at 6, other heads of the first layer join nearly nothing or everything
    model = attach(plain, tiny_config(threshold=6.0, heads=heads, layers=(0,)))
    (layer,) = assert_joins(model, inputs)
    with torch.no_grad():
        outputs = model(**inputs, output_attentions=True)
    assert not torch.allclose(outputs.last_hidden_state, base, atol=1e-2)
    valid = inputs["attention_mask"].bool()
    rows = outputs.attentions[0][:, list(heads)].double()
    for got, wanted, mask in zip(rows, reference_rows(layer), valid, strict=True):
        assert_close(got[:, mask], wanted[:, mask], rtol=0, atol=2e-5)
    lengths = valid.sum(-1).tolist()
    assert lengths[1] < lengths[0]
    assert_padding_changes_nothing(model, inputs, lengths, "right", 1e-5)
    assert torch.equal(run(detach(model), inputs), base)


CALLS = {"albert": 3, "bart": 6}  # BART: two encoder layers, two of self- and cross-attention each


def rows_of(outputs: Any) -> list[Tensor]:
    """Return all attention rows in the order of the calls, BART's cross-attention last."""
    if "encoder_attentions" in outputs:
        return [*outputs.encoder_attentions, *outputs.decoder_attentions, *outputs.cross_attentions]
    return list(outputs.attentions)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Values, outputs and rows of every call of the attention function."""
    calls: list[Any] = []
    inner = ALL_ATTENTION_FUNCTIONS["jat"]

    def spy(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        output, rows = inner(module, query, key, value, mask, **kwargs)
        groups = query.size(1) // value.size(1)
        calls.append((value.repeat_interleave(groups, dim=1), output, rows))
        return output, rows

    monkeypatch.setitem(type(ALL_ATTENTION_FUNCTIONS)._global_mapping, "jat", spy)
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(LENGTH, LENGTH), (LENGTH, 7)])
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("name", (*ARCHITECTURES, "opt"))
def test_rows_times_values_are_the_outputs(name, enabled, lengths, seen):
    model = tiny_jump_model(name, layers=None if name == "albert" else (1,))
    inputs = tiny_inputs(name, lengths)
    with torch.no_grad(), nullcontext() if enabled else disabled(model):
        without = model(**inputs)
        seen.clear()
        outputs = model(**inputs, output_attentions=True)
    rows = rows_of(outputs)
    if enabled:
        assert torch.equal(main_output(outputs), main_output(without))
    assert len(rows) == len(seen) == CALLS.get(name, 3)
    for value, output, weights in seen:
        assert any(weights is row for row in rows)
        assert_close((weights @ value).transpose(1, 2), output, rtol=0, atol=1e-5)
    with torch.no_grad():
        assert model(**inputs).get("attentions") is None  # the next forward does not ask


def test_a_part_of_the_model_called_alone_gives_rows():
    model, inputs = tiny_jump_model("gpt2"), tiny_inputs("gpt2")
    with torch.no_grad():
        outputs = model.transformer(**inputs, output_attentions=True)
        wanted = model(**inputs, output_attentions=True)
    assert len(outputs.attentions) == 3
    assert torch.equal(outputs.attentions[2], wanted.attentions[2])
    assert main_output(outputs).shape == (3, LENGTH, 32)


FORWARD = ALL_ATTENTION_FUNCTIONS["jat"]


@pytest.mark.parametrize("name", ["softcap", "position_bias", "cache", "s_aux", "sinks", "indices"])
def test_arguments_that_change_scores_are_refused(name):
    module = tiny_jump_model("bert").encoder.layer[0].attention.self
    query, key, value = torch.randn(3, 1, 4, LENGTH, 8).unbind()
    FORWARD(module, query, key, value, None, **{name: None})
    with pytest.raises(ValueError, match=f"BertSelfAttention passes {name}, which heads of"):
        FORWARD(module, query, key, value, None, **{name: torch.ones(1)})


def test_another_number_of_heads_is_refused():
    module = tiny_jump_model("bert").encoder.layer[0].attention.self
    query = torch.randn(1, 3, LENGTH, 8)
    with pytest.raises(ValueError, match=r"must have 4 heads.* got 3"):
        FORWARD(module, query, query, query, None)


def given(length: int, odd: bool = False) -> Tensor:
    """Return a mask of padding, or one that is neither padding nor causal."""
    valid = (torch.arange(LENGTH) < length).expand(3, 1, LENGTH, -1)
    return valid | torch.eye(LENGTH, dtype=torch.bool) if odd else valid.clone()


@pytest.mark.parametrize("inference", [False, True])
def test_a_mask_that_was_written_to_is_read_anew(inference):
    model, ids = tiny_jump_model("bert"), tiny_inputs("bert")["input_ids"]
    with torch.inference_mode(inference):
        mask = given(7)
        first = run(model, {"input_ids": ids, "attention_mask": mask})
        mask[:] = given(9)
        got = run(model, {"input_ids": ids, "attention_mask": mask})
        assert torch.equal(got, run(model, {"input_ids": ids, "attention_mask": given(9)}))
        assert not torch.equal(got, first)


@pytest.mark.slow
@pytest.mark.parametrize("odd", [False, True])
def test_a_mask_is_not_kept_alive(odd):
    mask = given(7, odd)
    run(tiny_jump_model("bert"), tiny_inputs("bert") | {"attention_mask": mask})
    alive = weakref.ref(mask)
    del mask
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("tokens", [1, 3])
def test_the_last_queries_alone_are_refused(tokens):
    module = tiny_jump_model("gpt2").transformer.h[1].attn
    query, key = torch.randn(1, 4, tokens, 8), torch.randn(1, 4, LENGTH, 8)
    with pytest.raises(ValueError, match=f"use_cache=False.* .got {tokens} queries for 12 keys"):
        FORWARD(module, query, key, key, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("additive", [False, True])
def test_a_mask_of_the_callers_own(name, side, additive):
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


def test_biases_of_an_additive_mask_do_not_vote():
    model, inputs = tiny_jump_model("bert"), tiny_inputs("bert")
    bias = torch.linspace(-1, 1, LENGTH).expand(3, 1, LENGTH, LENGTH)
    plain = run(model, inputs)
    (first, *_) = assert_joins(model, inputs | {"attention_mask": bias})
    assert first.mask.pairs is None
    assert first.mask.bias is not None
    assert not torch.allclose(run(model, inputs | {"attention_mask": bias}), plain, atol=1e-3)
    shifted = run(model, inputs | {"attention_mask": torch.full_like(bias, 0.5).contiguous()})
    assert_close(shifted, plain, rtol=0, atol=1e-5)  # softmax does not see a constant
