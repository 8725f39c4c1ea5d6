"""Decoders by clusters: with a cache they are what they are without, and what the oracle says."""

import copy
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from jat_graph import JatConfig, attach, detach
from jat_graph.hf import from_pretrained, save_pretrained
from tests.hf.causal import CLUSTERS, FAMILIES, LONG, PLAIN, decoder, decoder_inputs
from tests.hf.encoders import Call, calls
from tests.hf.models import VOCABULARY, run, tiny_model
from tests.hf.test_generation_cache import MODES, filled, forward, generate, in_chunks
from tests.oracles import reference_causal_clusters

__all__ = ["calls"]
WAYS = pytest.mark.parametrize("by_name", [True, False], ids=["by name", "attached"])
ELSEWHERE = "ignore:.* where its keys come from elsewhere:UserWarning"


def assert_near(got: Tensor, want: Tensor) -> None:
    assert_close(got, want, rtol=0, atol=1e-10)


def by_oracle(call: Call, **fields: Any) -> Tensor:
    """Return what the oracle makes of a call of a whole sequence."""
    valid = torch.ones_like(call.query[:, 0, :, 0], dtype=torch.bool)
    if call.mask is not None:
        valid = call.mask[:, 0].any(1)
    fields = {"keys": CLUSTERS["keys"], "block": CLUSTERS["block"]} | fields
    scale = call.options["scaling"]
    sequence, parts = valid.long() - 1, (call.query, call.key, call.value)
    return reference_causal_clusters(*parts, sequence=sequence, scale=scale, **fields)


@pytest.mark.filterwarnings(ELSEWHERE)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_reads_what_the_oracle_says(name: str, side: str, calls: list[Call]) -> None:
    inputs = decoder_inputs(name, side=side)
    run(decoder(name), inputs, use_cache=False)
    own = [
        call
        for call in calls
        if call.module.is_causal and call.options.get("sliding_window") is None
    ]
    assert len(own) == (3 if name in PLAIN and name != "gemma3" else 2)
    valid = inputs["attention_mask" if name in PLAIN else "decoder_attention_mask"].bool()
    for call in own:
        got, want = (x.transpose(1, 2)[valid] for x in (call.output, by_oracle(call)))
        assert_near(got, want)


def chunks(model: Any, inputs: dict[str, Tensor], sizes: tuple[int, ...]) -> Tensor:
    """Return the logits of a decoder's tokens, which come in chunks."""
    own = [key for key in inputs if key.endswith(("input_ids", "position_ids"))]
    if "decoder_input_ids" in inputs:
        own, mask = ["decoder_input_ids"], "decoder_attention_mask"
        cache: Any = hf.EncoderDecoderCache(hf.DynamicCache(), hf.DynamicCache())
    else:
        cache, mask = hf.DynamicCache(config=model.config), "attention_mask"
    logits, end = [], 0
    for size in sizes:
        start, end = end, end + size
        part = inputs | {key: inputs[key][:, start:end] for key in own}
        part[mask] = inputs[mask][:, :end]
        logits.append(run(model, part, past_key_values=cache, use_cache=True))
    return torch.cat(logits, dim=1)


@pytest.mark.filterwarnings(ELSEWHERE)
@WAYS
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", FAMILIES)
def test_chunks_and_single_tokens_are_the_whole(name: str, side: str, by_name: bool) -> None:
    model, inputs = decoder(name, by_name), decoder_inputs(name, side=side)
    valid = inputs["attention_mask" if name in PLAIN else "decoder_attention_mask"].bool()
    whole = run(model, inputs, use_cache=False)[valid]
    base = run(FAMILIES[name]().double(), inputs, use_cache=False)[valid]
    assert not torch.allclose(whole, base, rtol=0, atol=1e-4)
    for sizes in ((1,) * LONG, (5, 1, 1, 13, 3, 17), (LONG - 1, 1)):
        assert_near(chunks(model, inputs, sizes)[valid], whole)


@WAYS
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3"])
def test_every_way_to_generate(name: str, mode: str, by_name: bool) -> None:
    model, inputs = decoder(name, by_name), decoder_inputs(name)
    plain = {key: value for key, value in MODES[mode].items() if key != "prefill_chunk_size"}
    wanted = generate(model, inputs, use_cache=False, **plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = generate(model, inputs, use_cache=True, **MODES[mode])
    assert torch.equal(got.sequences, wanted.sequences)
    for mine, theirs in zip(got.logits, wanted.logits, strict=True):
        assert_near(mine, theirs)


@WAYS
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_guessed_tokens_are_cropped_again(name: str, by_name: bool) -> None:
    model, inputs = decoder(name, by_name), decoder_inputs(name, (LONG,))
    inputs["input_ids"][:, 20:] = inputs["input_ids"][:, :20]  # something to look up
    many = {"max_new_tokens": 20}
    wanted = generate(model, inputs, use_cache=False, **many).sequences
    options = [{"prompt_lookup_num_tokens": 5}]
    options += [{"assistant_model": other} for other in (FAMILIES[name]().double(), model)]
    for option in options:
        assert torch.equal(generate(model, inputs, **option, **many).sequences, wanted)


@WAYS
@settings(max_examples=10)
@given(data=st.data(), length=st.integers(2, 150), block=st.sampled_from((1, 2, 16)))
def test_cropped_and_reordered_caches_go_on_as_the_whole(
    by_name: bool, data: st.DataObject, length: int, block: int
) -> None:
    model = decoder("llama", by_name, block=block)
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(3, VOCABULARY, (2, length), generator=generator)
    mask = torch.arange(length) >= torch.randint(0, length, (2, 1), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    inputs["position_ids"] = (mask.long().cumsum(-1) - 1).clamp(min=0)
    whole, cache = run(model, inputs, use_cache=False), hf.DynamicCache()
    ends = st.sets(st.integers(1, length), max_size=4).map(sorted)
    forward(model, inputs, data.draw(ends), cache)
    known = cache.get_seq_length()
    left = data.draw(st.integers(max(0, known - 64), known))
    order = torch.tensor(data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=3)))
    if left:
        cache.batch_select_indices(order)
        if left < known:
            cache.crop(left - known)
    else:
        cache.reset()
    moved = {name: tensor[order] for name, tensor in inputs.items()}
    again = [end for end in data.draw(ends) if end > left]
    with torch.inference_mode(data.draw(st.booleans())):
        got = forward(model, moved, [*again, *range(max(left, length - 2) + 1, length + 1)], cache)
    valid = mask[order, left : left + got.size(1)]
    assert_near(got[valid], whole[order, left : left + got.size(1)][valid])
