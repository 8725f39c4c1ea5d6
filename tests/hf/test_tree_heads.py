"""Decoders by trees: with a cache they are what they are without, and what the oracle says."""

import copy
import math
import pickle
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from jat_graph import ClusterGraph, JatConfig, attach, detach
from jat_graph.hf import attached_config, from_pretrained
from tests.hf.causal import CACHED, CLUSTERS, FAMILIES, LONG, RULE, SERVED, decoder, decoder_inputs
from tests.hf.decoders import in_chunks
from tests.hf.encoders import Call, calls
from tests.hf.models import VOCABULARY, run
from tests.hf.test_generation_cache import assert_moved, filled
from tests.oracles import reference_tree_attention
from tests.support import count_operations

__all__ = ["calls"]
WAYS = pytest.mark.parametrize("by_name", [True, False], ids=["by name", "attached"])
MIXED = (5, 1, 1, 19, 3, 23)


def assert_near(got: Tensor, want: Tensor) -> None:
    assert_close(got, want, rtol=0, atol=1e-10)


def by_oracle(call: Call, **fields: Any) -> Tensor:
    """Return what the oracle makes of a call, of all tokens or of the last ones."""
    valid = torch.ones_like(call.key[:, 0, :, 0], dtype=torch.bool)
    if call.mask is not None:
        valid = call.mask[:, 0].any(1)
        valid = valid[:, : int(valid.any(0).nonzero().max()) + 1]  # where a static cache has room
    key, value = (x[:, :, : valid.size(1)] for x in (call.key, call.value))
    before = valid.size(1) - call.query.size(2)
    query = F.pad(call.query, (0, 0, before, 0))
    options = {"sequence": valid.long() - 1, "scale": call.options["scaling"]} | RULE | fields
    return reference_tree_attention(query, key, value, **options)[:, :, before:]


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_reads_what_the_oracle_says(name, side, calls):
    inputs = decoder_inputs(name, side=side)
    run(decoder(name), inputs, **{} if name == "clip text" else {"use_cache": False})
    own = [call for call in calls if in_order(call)]
    assert len(own) == SERVED.get(name, 3)
    for call in own:
        got, want = (x.transpose(1, 2)[mask_of(inputs)] for x in (call.output, by_oracle(call)))
        assert_near(got, want)


def in_order(call: Call) -> bool:
    """Tell whether a call is of causal self-attention without a window."""
    causal = call.options.get("is_causal", call.module.is_causal)
    return bool(causal) and call.options.get("sliding_window") is None


def mask_of(inputs: dict[str, Tensor]) -> Tensor:
    """Return which of a decoder's tokens are no padding."""
    return inputs.get("decoder_attention_mask", inputs.get("attention_mask")).bool()  # type: ignore[union-attr]


def new_cache(model: Any, kind: str = "dynamic") -> Any:
    """Return an empty cache of a kind, whose layers are as the model's."""
    if kind == "static":
        return hf.StaticCache(config=model.config, max_cache_len=200)
    return hf.DynamicCache(config=model.config)


def chunks(
    model: Any, inputs: dict[str, Tensor], sizes: tuple[int, ...], kind: str = "dynamic"
) -> Tensor:
    """Return the logits of a decoder's tokens, which come in chunks."""
    cache = new_cache(model, kind)
    if "decoder_input_ids" in inputs:
        cache = hf.EncoderDecoderCache(cache, hf.DynamicCache())
    return in_chunks(model, inputs, sizes, cache)[0]


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", CACHED)
def test_chunks_and_single_tokens_are_the_whole(name, side, by_name):
    model, inputs = decoder(name, by_name), decoder_inputs(name, side=side)
    valid = mask_of(inputs)
    whole = run(model, inputs, use_cache=False)[valid]
    base = run(FAMILIES[name]().double(), inputs, use_cache=False)[valid]
    assert not torch.allclose(whole, base, rtol=0, atol=1e-4)
    for kind, *ways in (("static", MIXED, (LONG - 1, 1)), ("dynamic", (1,) * LONG, MIXED)):
        for sizes in ways:
            assert_near(chunks(model, inputs, sizes, kind)[valid], whole)


@pytest.mark.slow
@WAYS
@settings(max_examples=20)
@given(
    data=st.data(),
    length=st.integers(2, 150),
    rule=st.fixed_dictionaries(
        {
            "keys": st.integers(0, 20),
            "segment": st.sampled_from((4, 8)),
            "window": st.sampled_from((1, 7)),
            "dense_below": st.sampled_from((0, 50)),
        }
    ),
)
def test_cropped_and_reordered_caches_go_on_as_the_whole(by_name, data, length, rule):
    assert_moved(decoder("llama", by_name, **rule), data, length, length)


FIRST = 12  # tokens that read all before them


@WAYS
@pytest.mark.parametrize("name", ["gpt2", "llama", "bart"])
def test_the_first_tokens_read_as_on_sdpa(name, by_name):
    """To the bit where all are such tokens, whether a cache keeps what they leave behind or not."""
    inputs = decoder_inputs(name, (FIRST, FIRST - 3))
    base = FAMILIES[name]().double()
    want = run(base, inputs, use_cache=False)
    for first in (FIRST, "inf", None):
        model = decoder(name, by_name, dense_below=first)
        for use_cache in (False, True):
            assert torch.equal(run(model, inputs, use_cache=use_cache), want)


def test_later_tokens_read_by_clusters_from_their_position_on(calls):
    model, inputs = decoder("llama", dense_below=FIRST), decoder_inputs("llama")
    valid, whole = mask_of(inputs), run(model, inputs, use_cache=False)
    for call in calls:
        got, want = call.output, by_oracle(call, dense_below=FIRST)
        assert_near(*(x.transpose(1, 2)[valid] for x in (got, want)))
    assert_near(chunks(model, inputs, MIXED)[valid], whole[valid])


@pytest.mark.slow
@pytest.mark.parametrize("heads", ["all", (1, 3)])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_heads_may_have_rules_of_their_own(name, heads):
    number = 4 if heads == "all" else 2
    tables: dict[str, Any] = {
        "keys": ((3, 1, 1, 5)[:number],) * 3,
        "groups": ((2, 1, 1, 1)[:number],) * 3,
        "dense_below": ((0, 0, 0, math.inf)[-number:],) * 3,
    }
    model, inputs = decoder(name, False, heads=heads, **tables), decoder_inputs(name)
    valid, whole = mask_of(inputs), run(model, inputs, use_cache=False)
    assert not torch.allclose(whole, run(FAMILIES[name]().double(), inputs), rtol=0, atol=1e-4)
    for sizes in ((1,) * LONG, (7, 5, 1, 20, 19)):
        assert_near(chunks(model, inputs, sizes)[valid], whole[valid])


def follow(model: Any, ids: Tensor, cache: Any) -> Tensor:
    """Return the logits of the next tokens."""
    return run(model, {"input_ids": ids[:, cache.get_seq_length() :]}, past_key_values=cache)


IDS = torch.randint(3, VOCABULARY, (2, 150), generator=torch.Generator().manual_seed(3))


def with_prefix(model: Any) -> Any:
    parts = torch.randn(2, 2, 2, 35, 8, generator=torch.Generator().manual_seed(1)).double()
    return hf.DynamicCache([tuple(parts)] * 3)


def recorded(model: Any) -> Any:
    return model(IDS[:, :35], use_cache=True).past_key_values


def other_mask(model: Any) -> Any:
    mask = torch.eye(35, dtype=torch.bool).expand(2, 1, 35, 35)
    return filled(model, IDS[:, :35], attention_mask=mask)


def densely(model: Any) -> Any:
    model.set_attn_implementation("sdpa")
    cache = filled(model, IDS[:, :35])
    model.set_attn_implementation("clustered")
    return cache


def of_other_heads(model: Any) -> Any:
    return filled(decoder("llama", False, keys=2), IDS[:, :35])


def with_room(model: Any) -> Any:
    cache = new_cache(model, "static")
    return filled(FAMILIES["llama"]().double(), IDS[:, :35], past_key_values=cache)


FILLS = [with_prefix, recorded, other_mask, densely, of_other_heads, with_room]


@pytest.mark.slow
@pytest.mark.parametrize("fill", FILLS)
def test_a_prefix_of_any_kind_is_read_by_its_keys(fill, calls):
    model, logits = decoder("llama"), []
    for own in (model, model, decoder("llama", False)):  # a model's first call sees no cache
        cache = fill(model)
        calls.clear()
        logits.append(torch.cat([follow(own, IDS[:, :end], cache) for end in (36, 60, 61)], 1))
        assert len(calls) == 9 * (own is model)
        for call in calls:
            assert_near(call.output, by_oracle(call))
    for other in logits[1:]:
        assert_near(other, logits[0])


def test_what_clusters_cannot_follow_is_one_line_and_by_name_sdpas():
    base = FAMILIES["llama"]().double()
    windows = filled(base, IDS[:, :20], past_key_values=hf.DynamicCache(config=hf.MistralConfig()))
    text = r"need a cache that keeps all tokens, got a DynamicCache \(DynamicSlidingWindowLayer\)"
    with pytest.raises(ValueError, match=text) as seen:
        follow(decoder("llama", False), IDS, copy.deepcopy(windows))
    assert "\n" not in str(seen.value)
    model = decoder("llama")
    run(model, {"input_ids": IDS})
    with pytest.warns(UserWarning, match=f"LlamaAttention runs on SDPA instead of .* {text}"):
        got = follow(model, IDS, copy.deepcopy(windows))
    assert_near(got, follow(base, IDS, windows))


@pytest.mark.slow
@WAYS
def test_a_static_cache_that_is_filled_anew_has_no_tokens_of_before(by_name):
    model, start = decoder("llama", by_name), 0
    cache = new_cache(model, "static")
    for ids in (IDS, IDS.flip(1), torch.cat([IDS.flip(1)[:, :50], IDS], 1)):
        whole = run(model, {"input_ids": ids[:, :90]}, use_cache=False)
        for end in (61, 62, 80):
            assert_near(follow(model, ids[:, :end], cache), whole[:, start:end])
            start = end
        for copied in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
            assert_near(follow(model, ids[:, :90], copied), whole[:, 80:])
        start = 0 if ids is IDS else 50
        if start == 0:
            cache.reset()
        for layer in cache.layers:  # by hand, as there is no crop
            layer.cumulative_length.fill_(start)


@WAYS
def test_an_offloaded_layer_leaves_nothing_behind(by_name):
    """By its own method alone: transformers moves layers on CUDA's streams."""
    model, cache, start = decoder("llama", by_name), hf.DynamicCache(), 0
    whole = run(model, {"input_ids": IDS[:, :60]}, use_cache=False)
    for end in (30, 50, 51, 60):
        assert_near(follow(model, IDS[:, :end], cache), whole[:, start:end])
        for layer in cache.layers:
            layer.offload()
            assert not getattr(layer, "stores", ()) and layer.keys.size(2) == end
        start = end


@pytest.mark.slow
def test_compiled_tokens_are_sdpas_and_the_next_ones_trees(calls):
    torch._dynamo.reset()
    model, base = decoder("llama"), FAMILIES["llama"]().double()
    for way in ("ignore", "error"):  # as all are warned once, and the first call sees no cache
        follow(model, IDS[:, :40], cache := new_cache(model, "static"))
        want = follow(base, IDS[:, :41], copy.deepcopy(cache))
        with warnings.catch_warnings():
            warnings.filterwarnings(way, message=".*torch.compile: pass disable_compile=True")
            got = follow(torch.compile(model, backend="eager"), IDS[:, :41], cache)
        assert_near(got, want)
        calls.clear()
        follow(model, IDS[:, :60], cache)
        for call in calls:
            assert_near(call.output, by_oracle(call))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools:UserWarning")
def test_attached_heads_refuse_a_static_cache_in_a_model_that_is_compiled_in_parts():
    torch._dynamo.reset()
    model = decoder("llama", False)
    follow(model, IDS[:, :40], cache := new_cache(model, "static"))
    compiled = torch.compile(model, backend="eager")
    for end in (41, 42):
        with pytest.raises(
            ValueError, match="a static cache in a compiled model: pass disable_com"
        ):
            follow(compiled, IDS[:, :end], cache)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_windows_of_a_models_own_stay_as_they_are(kind):
    model, inputs = FAMILIES["mistral"]().double(), decoder_inputs("mistral")
    model.config.sliding_window, model.config.clustered = 9, CLUSTERS
    want = chunks(model, inputs, MIXED, kind)
    model.set_attn_implementation("clustered")
    with pytest.warns(UserWarning, match="on SDPA instead of clusters where it reads within a wi"):
        assert torch.equal(chunks(model, inputs, MIXED, kind), want)
    assert torch.equal(chunks(model, inputs, MIXED, kind), want)


@WAYS
def test_gradients_through_a_cache_are_refused_or_left_to_sdpa(by_name):
    model, text = decoder("llama", by_name), "heads with gradients, dropout or torch.compile need"
    cache = filled(model, IDS[:, :35])
    if not by_name:
        with pytest.raises(ValueError, match=text):
            model(IDS[:, 35:60], past_key_values=cache)
        return
    with pytest.warns(UserWarning, match=text):
        model(IDS[:, 35:60], past_key_values=cache).logits.sum().backward()


@WAYS
def test_packed_documents_are_sequences_of_their_own(by_name):
    model, sizes = decoder("llama", by_name), (50, 30)
    positions = torch.cat([torch.arange(size) for size in sizes])[None]
    packed = {"input_ids": IDS[:1, :80], "position_ids": positions}
    with torch.inference_mode(), count_operations() as seen:
        whole = run(model, packed, use_cache=False).split(sizes, 1)
    assert seen["jat_graph.packed_documents.default"] == 1  # for all layers
    for ids, got in zip(IDS[:1, :80].split(sizes, 1), whole, strict=True):
        assert_near(got, run(model, {"input_ids": ids}, use_cache=False))


MASKS = {
    "a window": (torch.ones(40, 40).tril().triu(-9).bool(), "each of which sees itself alone"),
    "an image": (torch.block_diag(torch.ones(9, 9), torch.ones(31, 31)) > 0, "later tokens or"),
    "biases": (torch.linspace(0, 1, 40).expand(40, 40).tril(), "later tokens or biases"),
}


@pytest.mark.parametrize("kind", MASKS)
def test_masks_that_say_more_are_left_to_sdpa_or_refused(kind):
    mask, text = MASKS[kind]
    inputs = {"input_ids": IDS[:1, :40], "attention_mask": mask[None, None].to(torch.float64)}
    if mask.dtype == torch.bool:
        inputs["attention_mask"] = mask[None, None]
    base, model = FAMILIES["llama"]().double(), decoder("llama")
    with pytest.warns(UserWarning, match=text):
        got = run(model, inputs, use_cache=False)
    assert torch.equal(got, run(base, inputs, use_cache=False))
    with pytest.raises(ValueError, match=text):
        run(decoder("llama", False), inputs, use_cache=False)


@WAYS
def test_a_new_token_moves_no_key_of_others(by_name):
    model, cache = decoder("llama", by_name), hf.DynamicCache()
    run(model, {"input_ids": IDS[:, :60]}, use_cache=False)  # by name it hands caches on from now
    places = set()
    for end in range(30, 50):
        follow(model, IDS[:, :end], cache)
        places.add(cache.layers[0].keys.data_ptr())
    assert len(places) == 2  # where it was, and where there is room


@WAYS
def test_a_model_goes_back_to_sdpa_and_takes_clusters_again(by_name):
    model, base = decoder("llama", by_name), FAMILIES["llama"]().double()
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    ours = model.generate(IDS, **options)
    if by_name:
        model.set_attn_implementation("sdpa")
        assert not any(h(m, (), {}) for m in model.modules() for h in m._forward_pre_hooks.values())
    else:
        detach(model)
    assert torch.equal(model.generate(IDS, **options), base.generate(IDS, **options))
    if by_name:
        model.set_attn_implementation("clustered")
    else:
        attach(model, JatConfig.clustered(**CLUSTERS))
    assert torch.equal(model.generate(IDS, **options), ours)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bfloat16", "autocast", "inference mode"])
def test_precisions_and_modes(kind):
    model, ids = decoder("llama").float(), IDS[:, :LONG]
    wanted = run(model, {"input_ids": ids}, use_cache=False)
    model = model.bfloat16() if kind == "bfloat16" else model
    inference = torch.inference_mode(kind == "inference mode")
    with inference, torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
        got = chunks(model, decoder_inputs("llama", (LONG, LONG)) | {"input_ids": ids}, (42, 1, 9))
    error = float((got.float() - wanted).abs().max())
    assert error < (1e-5 if kind == "inference mode" else 0.1), error


@WAYS
def test_a_compiled_forward_is_the_model(by_name):
    torch._dynamo.reset()
    model = decoder("llama", by_name)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    packed = {"input_ids": IDS[:1, :LONG], "position_ids": torch.arange(26).repeat(1, 2)}
    for inputs in ({"input_ids": IDS[:, :31]}, decoder_inputs("llama"), packed):
        valid = mask_of(inputs) if "attention_mask" in inputs else ...
        got, want = (run(some, inputs, use_cache=False)[valid] for some in (compiled, model))
        assert_near(got, want)


@WAYS
def test_a_saved_model_comes_back(by_name, tmp_path):
    model, options = decoder("llama", by_name), {"max_new_tokens": 5, "do_sample": False}
    want = model.generate(IDS[:1, :LONG], **options)
    model.save_pretrained(tmp_path)
    if by_name:
        kind = hf.AutoModelForCausalLM
        loaded = kind.from_pretrained(tmp_path, attn_implementation="clustered")
        assert loaded.config.clustered == CLUSTERS
    else:
        loaded = from_pretrained(hf.AutoModelForCausalLM, tmp_path)
        assert attached_config(loaded, ClusterGraph) == attached_config(model, ClusterGraph)
    assert torch.equal(loaded.generate(IDS[:1, :LONG], **options), want)
