"""Attached models read the scores of the reference, within a pattern or everywhere."""

import pytest
import torch
import transformers as hf
from torch import Tensor
from torch.testing import assert_close

from jat_graph.hf import attach, capture_scores, detach, disabled, resize_position_embeddings
from tests.hf.decoders import SETTINGS
from tests.hf.models import (
    ARCHITECTURES,
    LENGTH,
    PADDINGS,
    VOCABULARY,
    assert_joins,
    main_output,
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
    batch, length = valid.shape
    rows = torch.zeros(batch, 4, length, length, dtype=torch.bool)
    for row, own in zip(rows, valid, strict=True):
        kept = own.nonzero().squeeze(-1)
        row[:, kept[:, None], kept] = reference_pairs(RULES[pattern], 4, len(kept))
    return rows


READ = [(name, None, (0.0, 1.0)) for name in ARCHITECTURES]
WITHIN = [(name, pattern) for name in ("bert", "gpt2") for pattern in RULES]
# ModernBERT's own window, of 4 to each side, holds this one.
WITHIN += [("llama", "window:3+global:1"), ("bart", "window:4"), ("modernbert", "window:4")]
READ += [(*case, hops) for case in WITHIN for hops in ((1,), (0.0, 1.0))]


@pytest.mark.slow
@pytest.mark.parametrize(("lengths", "side"), PADDINGS)
@pytest.mark.parametrize(("name", "pattern", "hops"), READ)
def test_attention_is_the_reference(name, pattern, hops, lengths, side, device):
    inputs = {key: x.to(device) for key, x in tiny_inputs(name, lengths, side=side).items()}
    model = tiny_model(name).to(device)
    base = run(model, inputs)
    attach(model, tiny_config(pattern=pattern, hop_weights=hops))
    if hops != (1,):
        assert_joins(model, inputs)
    with capture_scores(model) as layers, torch.no_grad():
        outputs = model(**inputs, output_attentions=True)
    assert not torch.allclose(main_output(outputs), base, atol=1e-3)
    kinds = ("encoder_attentions", "decoder_attentions", "attentions")
    found = [rows for kind in kinds for rows in outputs.get(kind) or ()]
    found = [torch.cat(found)] if name == "albert" else found  # one module, three calls
    for layer, rows in zip(layers, found, strict=True):
        mask = layer.mask.allowed(layer.query.size(2), layer.query.device)
        visible = reference_mask(layer.query, mask).visible
        if pattern is not None:
            valid = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
            visible = visible & rows_of(pattern, valid)[:, list(layer.heads)]
        wanted, got = masked_softmax(reference_scores_of(layer, hops), visible), rows[:, [0, 2]]
        if layer.mask.valid is not None:
            wanted, got = (x * layer.mask.valid.unsqueeze(-1) for x in (wanted, got))
        assert_close(got.double(), wanted, rtol=0, atol=2e-5)
    with disabled(model):
        assert torch.equal(run(model, inputs), base)
    assert torch.equal(run(detach(model), inputs), base)


@pytest.mark.slow
@pytest.mark.parametrize("hops", [(1,), (0.5, 0.5)])
@pytest.mark.parametrize("pattern", RULES)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generation_within_a_pattern(name, pattern, hops):
    config = tiny_config(pattern=pattern, hop_weights=hops, **SETTINGS["strided"])
    assert_same(attach(tiny_model(name), config), tiny_inputs(name, LEFT, side="left"))


def test_an_additive_mask_hides_what_a_pattern_shows():
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


def test_a_window_of_the_models_own_is_not_taken_for_padding():
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


def test_a_long_padded_batch_stores_nothing_of_its_squared_length():
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
