"""Attached models read their scores within the pattern, in every self-attention module."""

from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from torch.testing import assert_close

from jat_graph.hf import attach, detach, disabled, resize_position_embeddings
from tests.hf.decoders import SETTINGS
from tests.hf.models import (
    LENGTH,
    PADDINGS,
    TEXT,
    VOCABULARY,
    assert_joins,
    assert_padding_changes_nothing,
    reference_scores_of,
    run,
    tiny_config,
    tiny_inputs,
    tiny_model,
)
from tests.hf.test_generation_cache import LEFT, assert_same
from tests.oracles import masked_softmax, reference_mask
from tests.oracles.patterns import (
    Rule,
    reference_global_tokens,
    reference_local_blocks,
    reference_pairs,
    reference_strided,
    reference_window,
)
from tests.support import MemoryMeter


def either(*rules: Rule) -> Rule:
    return lambda head, q, k: any(rule(head, q, k) for rule in rules)


STRIDED = reference_strided(3)  # rows and columns in turns
RULES = {
    "window:4": reference_window(4),
    "window:3+global:1": either(reference_window(3), reference_global_tokens(1)),
    "strided:3": lambda head, q, k: STRIDED[head % 2](head, q, k),
    "global:2+local:4": either(reference_global_tokens(2), reference_local_blocks(4, 0, 0)),
}


def rows_of(pattern: str, valid: Tensor) -> Tensor:
    """Return the pattern as a dense mask ``[B, H, L, L]``; it counts valid tokens only."""
    rows = torch.zeros(len(valid), 4, LENGTH, LENGTH, dtype=torch.bool)
    for row, own in zip(rows, valid, strict=True):
        kept = own.nonzero().squeeze(-1)
        row[:, kept[:, None], kept] = reference_pairs(RULES[pattern], 4, len(kept))
    return rows


def valid_of(inputs: dict[str, Tensor]) -> Tensor:
    ids = inputs["input_ids"]
    return inputs.get("attention_mask", torch.ones_like(ids)).bool()


def run_under(name: str, model: hf.PreTrainedModel, inputs: Any, allowed: Tensor) -> Tensor:
    """Return what a plain model gives under a 4D mask; BART's decoder has one of its own."""
    mine = {key: value for key, value in inputs.items() if not key.startswith("decoder_")}
    bias = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    causal = bias.masked_fill(~torch.ones(LENGTH, LENGTH).bool().tril(), bias.min())
    if name != "bart":
        return run(model, mine | {"attention_mask": causal if name in ("gpt2", "llama") else bias})
    encoded = run(model.encoder, mine | {"attention_mask": bias})
    return run(
        model.decoder,
        {
            "input_ids": inputs["decoder_input_ids"],
            "attention_mask": causal,
            "encoder_hidden_states": encoded,
            "encoder_attention_mask": inputs.get("attention_mask"),
        },
    )


@pytest.mark.parametrize(("lengths", "side"), PADDINGS)
@pytest.mark.parametrize("pattern", ["window:4", "window:3+global:1"])
@pytest.mark.parametrize("name", ["bert", "modernbert", "gpt2", "llama", "bart"])
def test_a_pattern_alone_is_sdpa_with_its_mask(
    name: str, pattern: str, lengths: tuple[int, ...], side: str
) -> None:
    # ModernBERT's own window, of 4 to each side, holds this one.
    pattern = "window:4" if name == "modernbert" else pattern
    model, inputs = tiny_model(name), tiny_inputs(name, lengths, side=side)
    valid, base = valid_of(inputs), run(model, inputs)
    wanted = run_under(name, model, inputs, rows_of(pattern, valid))
    attach(model, tiny_config(pattern=pattern, hop_weights=(1,)))
    got = run(model, inputs)
    assert_close(got[valid], wanted[valid], rtol=0, atol=1e-5)
    assert not torch.allclose(got[valid], base[valid], atol=1e-3)
    with disabled(model):
        assert torch.equal(run(model, inputs), base)
    assert torch.equal(run(detach(model), inputs), base)


@pytest.mark.parametrize(("lengths", "side"), PADDINGS)
@pytest.mark.parametrize("pattern", RULES)
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_jump_heads_read_propagated_scores_within_the_pattern(
    name: str, pattern: str, lengths: tuple[int, ...], side: str
) -> None:
    model = attach(tiny_model(name), tiny_config(pattern=pattern))
    inputs = tiny_inputs(name, lengths, side=side)
    layers, valid = assert_joins(model, inputs), valid_of(inputs)
    with torch.no_grad():
        rows = model(**inputs, output_attentions=True).attentions
    rule = rows_of(pattern, valid)
    for layer in layers:
        query = layer.query.double()
        mask = layer.mask.allowed(LENGTH, query.device)
        visible = reference_mask(query, mask).visible & rule[:, list(layer.heads)]
        wanted = masked_softmax(reference_scores_of(layer), visible)
        assert_close(rows[layer.layer][:, [0, 2]].double(), wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [name for name in TEXT if name != "bart"])
def test_padding_changes_no_valid_token(name: str, side: str) -> None:
    model = attach(tiny_model(name), tiny_config(pattern="window:3+global:1"))
    lengths, width = (LENGTH, 9, 6), LENGTH + 3
    inputs = tiny_inputs(name, lengths, side=side, padded_to=width)
    assert_padding_changes_nothing(model, inputs, lengths, side, 1e-5)


@pytest.mark.parametrize("hops", [(1,), (0.5, 0.5)])
@pytest.mark.parametrize("pattern", RULES)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generation_within_a_pattern(name: str, pattern: str, hops: tuple[float, ...]) -> None:
    config = tiny_config(pattern=pattern, hop_weights=hops, **SETTINGS["strided"])
    assert_same(attach(tiny_model(name), config), tiny_inputs(name, LEFT, side="left"))


def test_an_additive_mask_hides_what_a_pattern_shows() -> None:
    # The first block is joined with later ones only: its queries may read nothing.
    model = attach(tiny_model("gpt2"), tiny_config(pattern="random:4:1", hop_weights=(1,)))
    ids = tiny_inputs("gpt2")["input_ids"]
    later = ~torch.ones(LENGTH, LENGTH).bool().tril()
    bias = torch.zeros(len(ids), 1, LENGTH, LENGTH)
    bias = bias.masked_fill(later, torch.finfo(torch.float32).min)
    cache = hf.DynamicCache()
    with torch.no_grad():
        whole = model(input_ids=ids, attention_mask=bias, output_attentions=True)
        model(input_ids=ids[:, :2], attention_mask=bias[..., :2, :2], past_key_values=cache)
        rest = model(input_ids=ids[:, 2:], attention_mask=bias[..., 2:, :], past_key_values=cache)
    assert not whole.attentions[0][:, :, :4].any()
    assert_close(rest.logits, whole.logits[:, 2:], rtol=0, atol=1e-5)


def test_a_window_of_the_models_own_is_not_taken_for_padding() -> None:
    """Its mask of a new token hides what has left the window, as it would hide padding."""
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = hf.MistralConfig(vocab_size=VOCABULARY, sliding_window=5, **shape, **heads)
    torch.manual_seed(0)
    model = hf.MistralForCausalLM(config).eval()
    attach(model, tiny_config(pattern="window:3+global:1", hop_weights=(1,)))
    ids = torch.randint(3, VOCABULARY, (1, 8))
    cache = hf.DynamicCache()
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits
        for token in range(5):
            new = model(ids[:, token : token + 1], past_key_values=cache).logits
            assert_close(new[:, 0], whole[:, token], rtol=0, atol=1e-5)
        with pytest.raises(ValueError, match=r"last 5 tokens only.*use_cache=False"):
            model(ids[:, 5:6], past_key_values=cache)


def test_a_long_padded_batch_stores_nothing_of_its_squared_length() -> None:
    length = 2048
    model = resize_position_embeddings(tiny_model("bert"), length)
    strided = {"key_selection": "strided", "num_keys": 8, "backend": "threshold"}
    attach(model, tiny_config(pattern="window:16+global:1", **strided))
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (1, length), generator=generator)
    mask = torch.ones_like(ids)
    mask[:, -100:] = 0
    with MemoryMeter() as meter:
        outputs = model(input_ids=ids, attention_mask=mask)
        outputs.last_hidden_state.sum().backward()
    assert meter.largest < length**2 / 2
