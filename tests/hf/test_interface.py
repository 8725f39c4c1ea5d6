"""Models with jump heads: the base where nothing jumps, the reference where something does."""

import math
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from jat_graph import JatConfig
from jat_graph.hf import attach, detach
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


@pytest.mark.parametrize(
    "config",
    [
        JatConfig.paper(threshold=0.5),
        JatConfig.stones(strength=0.5),
        JatConfig.clustered(dense_below=0, keys=2, size=2, segment=4),
    ],
)
def test_a_forward_is_a_short_way_through_the_library(config: JatConfig) -> None:
    model, inputs = attach(tiny_model("bert"), config), tiny_inputs("bert")
    run(model, inputs)
    called = set[tuple[str, str, int]]()

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and "/jat_graph/" in code.co_filename and "<" not in code.co_name:
            called.add((code.co_filename, code.co_name, code.co_firstlineno))

    sys.setprofile(note)
    run(model, inputs)
    sys.setprofile(None)
    assert 2 < len({file for file, *_ in called}) <= 14 and len(called) <= 75


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


KINDS: dict[str, dict[str, Any]] = {
    "pairs": {},
    "pattern": {"pattern": "window:3+global:1"},
    "stones": {
        "graph": "stones",
        "threshold": 1.0,
        "strength": 0.5,
        "excluded_token_ids": (17, 29),
    },
}
PADDED = [
    (kind, name, side)
    for kind in KINDS
    for name in TEXT
    for side in ("left", "right")
    # BART's positions count padding on the left; stones are for layers that see all.
    if (name, side) != ("bart", "left") and (kind, name) != ("stones", "modernbert")
]


@pytest.mark.parametrize(("kind", "name", "side"), PADDED)
def test_padding_changes_no_valid_token(
    kind: str, name: str, side: str, device: torch.device
) -> None:
    model, lengths = tiny_jump_model(name, **KINDS[kind]).double().to(device), (LENGTH, 9, 1)
    inputs = on(device, tiny_inputs(name, lengths, side=side, padded_to=LENGTH + 3))
    if kind == "pairs":
        assert_joins(model, inputs)
    assert_padding_changes_nothing(model, inputs, lengths, side, 1e-10)


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


def test_the_pretrained_model(plain: Any, tokenizer: Any) -> None:
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
