"""Generation with a cache gives the tokens of generation without one, or says why it cannot."""

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from jat_graph import JatConfig
from jat_graph.hf import attach, detach, disabled
from tests.hf.causal import LONG, decoder, decoder_inputs
from tests.hf.decoders import LOW, RULES, SETTINGS, STRIDED, TABLE, in_chunks, prepared
from tests.hf.models import (
    LENGTH,
    PAD,
    VOCABULARY,
    assert_joins,
    run,
    tiny_config,
    tiny_inputs,
    tiny_jump_model,
    tiny_model,
)

NEW = 6  # tokens to generate
LEFT = (LENGTH, LENGTH - 4)
MODES: dict[str, dict[str, Any]] = {
    "sampling": {"do_sample": True, "temperature": 1.5},
    "beams": {"num_beams": 3},
    "sampled beams": {"num_beams": 2, "do_sample": True, "num_return_sequences": 2},
    "chunked prefill": {"prefill_chunk_size": 5},
    "static": {"cache_implementation": "static"},
    "static beams": {"cache_implementation": "static", "num_beams": 3},
}


CACHED = ("prefill_chunk_size", "cache_implementation")


def generate(model: hf.PreTrainedModel, inputs: dict[str, Tensor], **settings: Any) -> Any:
    inputs = {key: inputs[key] for key in ("input_ids", "attention_mask") if key in inputs}
    inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    torch.manual_seed(3)
    common = {"max_new_tokens": NEW, "eos_token_id": None, "do_sample": False}
    if settings.get("use_cache") is False:
        settings = {key: value for key, value in settings.items() if key not in CACHED}
    return model.generate(
        **inputs, **common | settings, return_dict_in_generate=True, output_logits=True
    )


def assert_same(model: Any, inputs: dict[str, Tensor], atol: float = 1e-5, **settings: Any) -> None:
    """Assert that a cache changes no token, and logits by rounding only."""
    wanted = generate(model, inputs, use_cache=False, **settings)
    for _ in range(2):  # as transformers keeps a static cache for the next prompt
        got = generate(model, inputs, use_cache=True, **settings)
        assert torch.equal(got.sequences, wanted.sequences)
        for mine, theirs in zip(got.logits, wanted.logits, strict=True):
            assert_close(mine, theirs, rtol=0, atol=atol)


STONES: dict[str, dict[str, Any]] = {
    "stones": {},
    "strided stones": STRIDED,
    "two hops": {"hops": 2, "sides": "positive", "incidence": "hard"},
    "no values": {**STRIDED, "strength": (-0.5, 0.7, 0.0)},
    "values only": {"strength": (0.0, 0.0, 0.5), "incidence": "sigmoid", "heads": (1, 3)},
    "window": {**STRIDED, "pattern": "window:4"},
}
EXCLUDED = (7, 11, 13, 17)
CLUSTERED = ("clusters", "clusters by name")


def stone_model(name: str, **settings: Any) -> hf.PreTrainedModel:
    """Return a tiny model that jumps strongly over stones, and whose scores differ enough."""
    fields = {"threshold": 0.5, "excluded_token_ids": EXCLUDED} | settings
    model = attach(tiny_model(name), JatConfig.stones(**fields))
    torch.manual_seed(2)
    for key, parameter in model.named_parameters():
        if key.endswith("strength.theta"):
            torch.nn.init.normal_(parameter)
    return model.double()


def with_excluded(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return inputs in which every fifth token is excluded."""
    ids = inputs["input_ids"].clone()
    ids[:, ::5] = EXCLUDED[0]
    valid = inputs.get("attention_mask", torch.ones_like(ids)).bool()
    return inputs | {"input_ids": torch.where(valid, ids, inputs["input_ids"])}


def subject(name: str, kind: str, lengths: Any = None, side: str = "left") -> tuple[Any, ...]:
    """Return a model with heads of a kind, its inputs, and how far logits may be apart."""
    if kind in CLUSTERED:
        inputs = decoder_inputs(name, lengths or (LONG, LONG - 9), side)
        return decoder(name, kind == "clusters by name"), inputs, 1e-10
    lengths = lengths or LEFT
    if kind == "silent tokens":
        model = tiny_jump_model(name, excluded_token_ids=EXCLUDED).double()
        return model, with_excluded(tiny_inputs(name, lengths, side=side)), 1e-10
    if kind in STONES:
        inputs = with_excluded(tiny_inputs(name, lengths, side=side))
        return stone_model(name, **STONES[kind]), inputs, 1e-10
    if kind == "stones and clusters":
        model = stone_model(name, heads=(0, 2))
        settings = {"keys": 2, "size": 2, "segment": 4, "window": 1, "dense_below": 0}
        attach(model, JatConfig.clustered(heads=(1, 3), **settings))
        return model, with_excluded(tiny_inputs(name, lengths, side=side)), 1e-10
    return *prepared(name, SETTINGS[kind], lengths, side)[:2], 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("rule", [*RULES, pytest.param({"threshold": TABLE}, id="table")])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_greedy_tokens_of_padded_batches_are_those_without_a_cache(name, rule):
    assert_same(*prepared(name, rule, LEFT, "left")[:2])


WAYS = [(name, kind) for name in ("gpt2", "llama", "opt") for kind in ("all", "selected")]
WAYS += [("llama", kind) for kind in ("mapping", "stones", "strided stones", "silent tokens")]
WAYS += [("llama", "stones and clusters")]
WAYS += [(name, kind) for name in ("gpt2", "llama", "gemma3") for kind in CLUSTERED]


@pytest.mark.slow
@pytest.mark.parametrize("settings", MODES.values(), ids=MODES)
@pytest.mark.parametrize(("name", "kind"), WAYS)
def test_every_way_to_generate(name, kind, settings):
    assert_same(*subject(name, kind), **settings)


@pytest.mark.parametrize(
    ("lengths", "width", "options"), [((1, 1), 4, {}), ((6, 4), 18, {"prefill_chunk_size": 5})]
)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_prompt_may_begin_with_much_padding(name, lengths, width, options):
    inputs = tiny_inputs(name, lengths, side="left", padded_to=width)
    assert_same(tiny_jump_model(name), inputs, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("kind", ["all", "strided", "stones", "strided stones", *CLUSTERED])
def test_guessed_tokens_are_cropped_again(name, kind):
    model, inputs, _ = subject(name, kind, (44,))
    model.double()
    other = tiny_model(name).to(model.dtype)
    ids, many = inputs["input_ids"], {"max_new_tokens": 15}  # there are 64 positions
    ids[:, ids.size(1) // 2 :] = ids[:, : ids.size(1) // 2]  # something to look up
    wanted = generate(model, inputs, use_cache=False, **many).sequences
    options: list[Any] = [{"prompt_lookup_num_tokens": 5}]
    options += [{"assistant_model": assistant} for assistant in (other, model)]
    for option in options:
        assert torch.equal(generate(model, inputs, **option, **many).sequences, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("rule", ["all", "strided"])
def test_an_encoder_and_a_decoder(rule, num_beams):
    config = tiny_model("bart").config
    model = hf.BartForConditionalGeneration(config).eval()
    model.model.load_state_dict(tiny_model("bart").state_dict())
    attach(model, tiny_config(**SETTINGS[rule]))
    inputs = tiny_inputs("bart", LEFT)
    assert_joins(model, inputs)
    assert_same(model, inputs, num_beams=num_beams, forced_bos_token_id=None, max_new_tokens=9)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1,) * LENGTH, (5, 4, 3), (11, 1)])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("name", "kind"), [("gpt2", "all"), ("llama", "all"), ("gpt2", "strided stones")]
)
def test_chunks_of_any_size_give_the_whole(name, kind, side, sizes):
    model, inputs, atol = subject(name, kind, side=side)
    with torch.no_grad():
        whole = model(**inputs, output_attentions=True)
    got, rows = in_chunks(model, inputs, sizes, output_attentions=True)
    valid = inputs["attention_mask"].bool()
    assert_close(got[valid], whole.logits[valid], rtol=0, atol=atol)
    end = 0
    for size, chunk in zip(sizes, rows, strict=True):
        end += size
        seen = valid[:, None, end - size : end, None]
        for mine, theirs in zip(chunk, whole.attentions, strict=True):
            assert_close(
                mine * seen, theirs[:, :, end - size : end, :end] * seen, rtol=0, atol=atol
            )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["all", "strided", "selected", *STONES])
@settings(max_examples=6)
@given(data=st.data(), length=st.integers(2, 150), seed=st.integers(0, 99))
def test_cropped_and_reordered_caches_go_on_as_the_whole(kind, data, length, seed):
    """Up to 150 tokens, of which a crop takes away few or many."""
    rules = {} if kind in STONES else SETTINGS[kind]
    model = stone_model("llama", **STONES[kind]) if kind in STONES else None
    assert_moved(model or tiny_jump_model("llama", **rules).double(), data, length, seed, 1e-8)


def assert_moved(
    model: Any, data: st.DataObject, length: int, seed: int, atol: float = 1e-10
) -> None:
    """Assert that a cropped and reordered cache goes on as the whole does."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCABULARY, (2, length), generator=generator)
    mask = torch.arange(length) >= torch.randint(0, length, (2, 1), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    inputs["position_ids"] = (mask.long().cumsum(-1) - 1).clamp(min=0)
    whole, cache = run(model, inputs, use_cache=False), hf.DynamicCache()
    ends = st.sets(st.integers(1, length), max_size=4).map(sorted)
    forward(model, inputs, data.draw(ends), cache)
    left = data.draw(st.integers(0, cache.get_seq_length()))
    order = torch.tensor(data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=3)))
    if left:
        cache.batch_select_indices(order)
        if left < cache.get_seq_length():
            cache.crop(left - cache.get_seq_length())
    else:
        cache.reset()
    moved = {name: tensor[order] for name, tensor in inputs.items()}
    again = [end for end in data.draw(ends) if end > left]
    with torch.inference_mode(data.draw(st.booleans())):
        got = forward(model, moved, [*again, *range(max(left, length - 2) + 1, length + 1)], cache)
    valid = mask[order, left : left + got.size(1)]
    wanted = whole[order, left : left + got.size(1)]
    assert_close(got[valid], wanted[valid], rtol=0, atol=atol)


def forward(
    model: hf.PreTrainedModel, inputs: dict[str, Tensor], ends: list[int], cache: hf.DynamicCache
) -> Tensor:
    """Return the logits of the tokens that come after those in a cache, chunk by chunk."""
    start = min(cache.get_seq_length(), inputs["input_ids"].size(1))
    logits = [torch.zeros(len(inputs["input_ids"]), 0, VOCABULARY, dtype=torch.float64)]
    for end in sorted({end for end in ends if end > start}):
        chunk = {name: tensor[:, start:end] for name, tensor in inputs.items()}
        chunk["attention_mask"] = inputs["attention_mask"][:, :end]
        logits.append(run(model, chunk, past_key_values=cache))
        start = end
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("over_stones", [False, True])
def test_gradients_reach_the_tokens_in_the_cache(over_stones):
    if over_stones:
        model = stone_model("gpt2", excluded_token_ids=())
    else:
        model = tiny_jump_model("gpt2", threshold=0.5).double()
    words = model.get_input_embeddings()(tiny_inputs("gpt2")["input_ids"]).detach()
    words.requires_grad_()
    learned = [words, *(p for name, p in model.named_parameters() if name.endswith("theta"))]
    whole = model(inputs_embeds=words, use_cache=False).logits[:, 7:].square().sum()
    cache = model(inputs_embeds=words[:, :7], use_cache=True).past_key_values
    parts = model(inputs_embeds=words[:, 7:], past_key_values=cache).logits.square().sum()
    wanted, got = (torch.autograd.grad(loss, learned) for loss in (whole, parts))
    for mine, theirs in zip(got, wanted, strict=True):
        assert_close(mine, theirs, rtol=1e-9, atol=1e-9)
    assert bool(wanted[0][:, :7].any())


def filled(model: hf.PreTrainedModel, ids: Tensor, **options: Any) -> Any:
    with torch.no_grad():
        return model(input_ids=ids, use_cache=True, **options).past_key_values


@pytest.mark.parametrize("kind", ["all", "stones", *CLUSTERED])
def test_a_copy_of_a_cache_is_a_start_of_its_own(kind):
    model, inputs, _ = subject("llama", kind, (44, 44))
    model.double()
    ids = inputs["input_ids"]
    wanted = run(model, {"input_ids": ids})
    prompt = filled(model, ids[:, :30])
    for _ in range(2):
        got = run(model, {"input_ids": ids[:, 30:]}, past_key_values=copy.deepcopy(prompt))
        assert_close(got, wanted[:, 30:], rtol=0, atol=1e-5)
    prompt.batch_select_indices(torch.tensor([1]))
    prompt.batch_repeat_interleave(2)
    got = run(model, {"input_ids": ids[[1, 1], 30:]}, past_key_values=prompt)
    assert_close(got, wanted[[1, 1], 30:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", ["keys", "values"])
@pytest.mark.parametrize("kind", ["all", "stones", *CLUSTERED])
def test_what_somebody_changes_in_a_cache_counts_or_is_refused(kind, name, in_place):
    model, inputs, _ = subject("llama", kind, (44, 44))
    model.double()
    ids = inputs["input_ids"]

    def edited() -> Any:
        prompt = filled(model, ids[:, :30])
        for layer in prompt.layers:
            if in_place:
                getattr(layer, name)[:, :, 5:25] *= -1
            else:
                setattr(layer, name, getattr(layer, name).flip(2))
        return prompt

    def follow(prompt: Any) -> Tensor:
        parts = [{"input_ids": ids[:, 30:31]}, {"input_ids": ids[:, 31:]}]
        return torch.cat([run(model, part, past_key_values=prompt) for part in parts], 1)

    if kind == "stones" or (kind, name) == ("all", "keys"):
        prompt = edited()
        for _ in range(2):  # it stays refused
            with pytest.raises(ValueError, match=f"the {name} of a cache were replaced or"):
                follow(prompt)
        return
    changed = follow(edited())
    assert (changed - follow(filled(model, ids[:, :30]))).abs().max() > 1e-2
    if kind in CLUSTERED:  # as in a cache that never was another one
        other = hf.DynamicCache()
        for number, layer in enumerate(edited().layers):
            other.update(layer.keys, layer.values, number)
        assert_close(follow(other), changed, rtol=0, atol=1e-10)


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("kind", ["all", "clusters"])
def test_a_cache_that_is_cropped_by_hand_may_not_be_changed_besides(kind, changed):
    model, inputs, _ = subject("llama", kind, (44, 44))
    ids = inputs["input_ids"]
    prompt = filled(model.double(), ids[:, :30])
    for layer in prompt.layers:
        layer.keys = layer.keys[:, :, :20] * (2 if changed else 1)
        layer.values = layer.values[:, :, :20].clone()
    if changed and kind == "all":
        with pytest.raises(ValueError, match="the keys of a cache were replaced"):
            run(model, {"input_ids": ids[:, 20:]}, past_key_values=prompt)
        return
    got = run(model, {"input_ids": ids[:, 20:]}, past_key_values=prompt)
    same = torch.allclose(got, run(model, {"input_ids": ids})[:, 20:], rtol=0, atol=1e-5)
    assert same is not changed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "num_beams"),
    [("all", 1), ("all", 2), ("stones", 1), ("stones", 2), *((kind, 1) for kind in CLUSTERED)],
)
def test_a_quantized_cache_changes_little(kind, num_beams):
    model, inputs, _ = subject("llama", kind)
    options: dict[str, Any] = {"cache_implementation": "quantized", "num_beams": num_beams}
    got = generate(model, inputs, **options, cache_config={"backend": "fp8"})
    away = got.logits[1] - generate(model, inputs, use_cache=False, **options).logits[1]
    assert 1e-4 < float(away.abs().max()) < (0.5 if kind in CLUSTERED else 0.02)


def test_a_sliding_cache_takes_the_first_tokens_only():
    model, inputs = tiny_jump_model("llama"), tiny_inputs("llama")
    cache = hf.DynamicCache(config=hf.MistralConfig(sliding_window=5))
    ones = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool).tril().expand(3, -1, -1, -1)
    got = run(model, inputs | {"attention_mask": ones}, past_key_values=cache)
    assert_close(got, run(model, inputs, use_cache=False), rtol=0, atol=1e-5)
    with torch.no_grad(), pytest.raises(ValueError, match=r"DynamicSlidingWindowLayer"):
        model(inputs["input_ids"][:, :1], past_key_values=cache)


def test_pairs_within_a_window_of_the_models_own_say_how_to_go_on():
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 8}
    settings = hf.MistralConfig(sliding_window=8, num_hidden_layers=1, **shape)
    model = attach(hf.MistralForCausalLM(settings).eval(), tiny_config())
    ids = tiny_inputs("llama")["input_ids"]
    with pytest.raises(ValueError, match=r"8 tokens only.* use_cache=False \(got 13 keys\)"):
        generate(model, {"input_ids": ids}, past_key_values=hf.DynamicCache())
    with pytest.raises(ValueError, match=r"DynamicCache\(\) for up to 8 tokens, or use_cache"):
        generate(model, {"input_ids": ids[:, :5]})


@pytest.mark.parametrize("how", ["detached", "disabled", "another config", "another mask"])
def test_a_cache_of_other_heads_is_refused(how):
    model, ids = tiny_jump_model("gpt2"), tiny_inputs("gpt2")["input_ids"]
    if how == "detached":
        detach(model)
        cache = filled(model, ids[:, :8])
        attach(model, tiny_config())
    elif how == "disabled":
        with disabled(model):
            cache = filled(model, ids[:, :8])
    elif how == "another config":
        cache = filled(model, ids[:, :8])
        attach(detach(model), tiny_config(**LOW))
    else:
        mask = torch.eye(8, dtype=torch.bool).expand(len(ids), 1, 8, 8)
        cache = filled(model, ids[:, :8], attention_mask=mask)
    with pytest.raises(ValueError, match="the cache holds 8 tokens that were added without"):
        filled(model, ids[:, 8:], past_key_values=cache)
    cache.reset()
    stones = stone_model("gpt2").float()
    for other in (model, stones):
        got = run(other, {"input_ids": ids}, past_key_values=cache)
        assert_close(got, run(other, {"input_ids": ids}), rtol=0, atol=1e-5)
        cache.reset()


def test_a_mask_that_contradicts_the_cache_is_refused():
    model, inputs = tiny_jump_model("gpt2"), tiny_inputs("gpt2", LEFT, side="left")
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    cache = filled(model, ids, attention_mask=mask)
    with pytest.raises(ValueError, match="attention_mask must be causal"):
        filled(model, ids[:, :1], past_key_values=cache)


def test_the_base_continues_what_jump_heads_began():
    model, ids = tiny_jump_model("gpt2", layers=(1,)), tiny_inputs("gpt2")["input_ids"]
    cache = filled(model, ids[:, :8])
    with disabled(model):
        base = filled(model, ids)
        assert_close(cache.layers[1].keys, base.layers[1].keys[:, :, :8])
        filled(model, ids[:, 8:], past_key_values=cache)
    assert cache.get_seq_length() == LENGTH
    with pytest.raises(ValueError, match="the cache holds 12 tokens"):
        filled(model, torch.full((3, 1), PAD + 3), past_key_values=cache)


@pytest.mark.slow
def test_no_cache_is_kept_alive():
    model, ids = tiny_jump_model("gpt2"), tiny_inputs("gpt2")["input_ids"]
    cache = weakref.ref(filled(model, ids).layers[0])
    gc.collect()
    assert cache() is None
