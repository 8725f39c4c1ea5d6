"""Models with jump heads: the base where nothing jumps, the reference where something does."""

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from torch.testing import assert_close
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from jat_graph import JatConfig
from jat_graph.hf import attach, detach
from tests.hf.models import (
    ARCHITECTURES,
    LENGTH,
    PADDINGS,
    TEXT,
    THRESHOLD,
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
from tests.oracles import reference_jump_attention
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
def test_a_forward_is_a_short_way_through_the_library(config: JatConfig) -> None:
    model, inputs = attach(tiny_model("bert"), config), tiny_inputs("bert")
    for name, parameter in model.named_parameters():
        if name.endswith("strength.theta"):
            torch.nn.init.normal_(parameter)
    run(model, inputs)
    assert_short(lambda: run(model, inputs), 14, 75)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_by_name_it_is_shorter_for_a_text_and_for_a_token(name: str) -> None:
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
        token = {"input_ids": inputs["input_ids"][:, :1], "past_key_values": cache}
        run(model, token)
        assert_short(lambda: run(model, token), 12, 60)
        assert {layer.past.kept[0][0].tree.clusters for layer in cache.layers} == {9 * 8}


@pytest.mark.parametrize(("lengths", "side"), PADDINGS)
@pytest.mark.parametrize("overrides", IDENTITIES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_where_nothing_jumps_the_model_is_its_base_to_the_bit(
    name: str,
    overrides: dict[str, object],
    lengths: tuple[int, ...],
    side: str,
    device: torch.device,
) -> None:
    model, inputs = tiny_model(name).to(device), on(device, tiny_inputs(name, lengths, side=side))
    base = run(model, inputs)
    attach(model, tiny_config(**overrides))
    assert torch.equal(run(model, inputs), base)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_dropout_draws_what_the_base_draws(name: str) -> None:
    rates = {"attention_dropout": 0.3} if name == "llama" else {}
    model, inputs = tiny_model(name, **rates).train(), tiny_inputs(name)
    torch.manual_seed(5)
    base = run(model, inputs)
    attach(model, tiny_config(threshold=math.inf))
    torch.manual_seed(5)
    assert torch.equal(run(model, inputs), base)
    torch.manual_seed(6)
    assert not torch.equal(run(model, inputs), base)


@pytest.mark.parametrize(("lengths", "side"), PADDINGS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_attention_is_the_reference(
    name: str, lengths: tuple[int, ...], side: str, device: torch.device
) -> None:
    model, inputs = tiny_model(name).to(device), on(device, tiny_inputs(name, lengths, side=side))
    base = run(model, inputs)
    attach(model, tiny_config())
    layers = assert_joins(model, inputs)
    with torch.no_grad():
        outputs = model(**inputs, output_attentions=True)
    assert not torch.allclose(main_output(outputs), base, atol=1e-3)
    if name == "albert":  # one module, three calls
        rows = torch.cat(outputs.attentions)
        found = {0: rows}
    elif name == "bart":
        found = dict(enumerate((*outputs.encoder_attentions, *outputs.decoder_attentions)))
    else:
        found = dict(enumerate(outputs.attentions))
    assert len(found) == len(layers)
    for layer in layers:
        wanted = reference_rows(layer)
        got = found[layer.layer][:, list(layer.heads)]
        if layer.mask.valid is not None:
            valid = layer.mask.valid.unsqueeze(-1)
            wanted, got = wanted * valid, got * valid
        assert_close(got.double(), wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", TEXT)
def test_the_mask_is_sdpas_and_padding_alone_is_no_matrix(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Tensor] = []

    def spy(**kwargs: Any) -> Tensor | None:
        mask, stock = registered(**kwargs), sdpa_mask(**kwargs)
        assert mask is not None and stock is not None
        assert mask.shape == stock.shape
        assert torch.equal(mask, stock)
        seen.append(mask)
        return mask

    registered = ALL_MASK_ATTENTION_FUNCTIONS["jat"]
    monkeypatch.setitem(type(ALL_MASK_ATTENTION_FUNCTIONS)._global_mapping, "jat", spy)
    run(tiny_jump_model(name), tiny_inputs(name, (LENGTH, 7)))
    rows = [mask.untyped_storage().nbytes() == 2 * LENGTH for mask in seen]
    assert rows == {
        "gpt2": [False],
        "llama": [False],
        "modernbert": [True, False],
        "bart": [True, False, True],
    }.get(name, [True])


# BART's positions count padding on the left.
PADDED = [(n, side) for n in TEXT for side in ("left", "right") if (n, side) != ("bart", "left")]


@pytest.mark.parametrize(("name", "side"), PADDED)
def test_padding_changes_no_valid_token(name: str, side: str, device: torch.device) -> None:
    model, lengths, width = tiny_jump_model(name).to(device), (LENGTH, 9, 6), LENGTH + 3
    inputs = on(device, tiny_inputs(name, lengths, side=side, padded_to=width))
    assert_joins(model, inputs)
    assert_padding_changes_nothing(model, inputs, lengths, side, 1e-5)


@pytest.mark.parametrize("hop_weights", [(0.0, 1.0), (0.5, 0.5), (0.2, 0.0, 0.8), (0.5, -0.5)])
@pytest.mark.parametrize("padded", [False, True])
def test_one_call_is_the_reference(hop_weights: tuple[float, ...], padded: bool) -> None:
    model = tiny_jump_model("llama", hop_weights=hop_weights).double()
    module = model.model.layers[0].self_attn
    query, value = torch.randn(2, 2, 4, LENGTH, 8, dtype=torch.float64).unbind()
    key, value = 1.5 * torch.randn(2, 2, LENGTH, 8, dtype=torch.float64), value[:, :2]
    mask = None
    if padded:
        valid = torch.arange(LENGTH) >= torch.tensor([0, 4]).unsqueeze(-1)
        mask = valid[:, None, None, :] & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    got, _ = ALL_ATTENTION_FUNCTIONS["jat"](module, query, key, value, mask, scaling=0.4)
    base, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=0.4)
    jumping = [0, 2]
    wanted = reference_jump_attention(
        query[:, jumping],
        key,  # heads 0 and 1 read the first key head, 2 and 3 the second
        value,
        threshold=THRESHOLD,
        hop_weights=hop_weights,
        attention_mask=mask,
        is_causal=True,
        scale=0.4,
    )
    assert_close(got[:, :, jumping].transpose(1, 2), wanted, rtol=0, atol=1e-10)
    assert torch.equal(got[:, :, [1, 3]], base[:, :, [1, 3]])
    assert not torch.allclose(got[:, :, jumping], base[:, :, jumping], atol=1e-3)


@pytest.mark.parametrize("hop_weights", [(0.0, 1.0), (0.0, 0.0, 1.0), (0.5, 0.5)])
@pytest.mark.parametrize("lengths", [(LENGTH, LENGTH), (LENGTH, 7)])
def test_jump_heads_and_ordinary_ones_take_one_fast_call_each(
    hop_weights: tuple[float, ...], lengths: tuple[int, ...]
) -> None:
    model, inputs = tiny_jump_model("bert", hop_weights=hop_weights), tiny_inputs("bert", lengths)
    assert_joins(model, inputs)
    with count_operations() as seen:
        run(model, inputs)
    assert sdpa_kernels(seen) == {"flash"}
    assert seen["aten._scaled_dot_product_flash_attention_for_cpu.default"] == 3 * 2  # layers


def test_the_pretrained_model(minilm_path: str) -> None:
    model = hf.AutoModel.from_pretrained(minilm_path).eval()
    texts = ["Book costs more than pencil. Book costs less than computer.", "Keys."]
    tokenizer = hf.AutoTokenizer.from_pretrained(minilm_path)
    inputs = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    base = run(model, inputs)
    for overrides in ({"hop_weights": (1.0,)}, {"threshold": math.inf, "heads": 12}):
        attach(model, tiny_config(**overrides))
        assert torch.equal(run(model, inputs), base)
        assert torch.equal(run(detach(model), inputs), base)
    heads = (8, 9, 10)  # at 6, other heads of the first layer join nearly nothing or everything
    attach(model, tiny_config(threshold=6.0, heads=heads, layers=(0,)))
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
