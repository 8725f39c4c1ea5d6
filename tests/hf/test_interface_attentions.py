"""``output_attentions=True``: a row for every layer, and rows that give the layer's output."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import jat_graph.hf.interface as interface
from jat_graph.hf import attach, disabled
from tests.hf.models import (
    ARCHITECTURES,
    LENGTH,
    assert_joins,
    main_output,
    run,
    tiny_config,
    tiny_inputs,
    tiny_jump_model,
    tiny_model,
)

NAMES = (*ARCHITECTURES, "opt")
CALLS = {"albert": 3, "bart": 6}  # BART: two encoder layers, two of self- and cross-attention each


def rows_of(outputs: Any) -> list[Tensor]:
    """Return all attention rows in the order of the calls, BART's cross-attention last."""
    if "encoder_attentions" in outputs:
        return [
            *outputs.encoder_attentions,
            *outputs.decoder_attentions,
            *outputs.cross_attentions,
        ]
    return list(outputs.attentions)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Values, outputs and rows of every call of the attention function."""
    calls: list[tuple[Tensor, Tensor, Tensor]] = []
    inner = interface.jat_attention_forward

    def spy(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        output, rows = inner(module, query, key, value, mask, **kwargs)
        assert rows is not None
        groups = query.size(1) // value.size(1)
        calls.append((value.repeat_interleave(groups, dim=1), output, rows))
        return output, rows

    monkeypatch.setitem(interface.AttentionInterface._global_mapping, "jat", spy)
    return calls


@pytest.mark.parametrize("lengths", [(LENGTH, LENGTH), (LENGTH, 7)])
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_rows_times_values_are_the_outputs(
    name: str, enabled: bool, lengths: tuple[int, ...], seen: list[tuple[Tensor, Tensor, Tensor]]
) -> None:
    model = tiny_jump_model(name, layers=None if name == "albert" else (1,))
    inputs = tiny_inputs(name, lengths)
    with torch.no_grad():
        if enabled:
            outputs = model(**inputs, output_attentions=True)
        else:
            with disabled(model):
                outputs = model(**inputs, output_attentions=True)
    rows = rows_of(outputs)
    assert len(rows) == len(seen) == CALLS.get(name, 3)
    for value, output, weights in seen:
        assert any(weights is row for row in rows)
        assert_close((weights @ value).transpose(1, 2), output, rtol=0, atol=1e-5)


@pytest.mark.parametrize("hops", [(1,), (0.5, 0.5)])
@pytest.mark.parametrize("lengths", [(LENGTH, LENGTH), (LENGTH, 7)])
@pytest.mark.parametrize("name", ["bert", "modernbert", "gpt2", "llama", "bart"])
def test_rows_within_a_pattern_times_values_are_the_outputs(
    name: str,
    lengths: tuple[int, ...],
    hops: tuple[float, ...],
    seen: list[tuple[Tensor, Tensor, Tensor]],
) -> None:
    model = tiny_jump_model(name, layers=(1,), pattern="window:4", hop_weights=hops)
    inputs = tiny_inputs(name, lengths)
    with torch.no_grad():
        rows = rows_of(model(**inputs, output_attentions=True))
    far = torch.ones(LENGTH, LENGTH).bool().triu(4)
    for number, (value, output, weights) in enumerate(seen):
        assert any(weights is row for row in rows)
        assert_close((weights @ value).transpose(1, 2), output, rtol=0, atol=1e-5)
        cross = name == "bart" and number in (3, 5)
        assert bool(weights[..., far | far.T].any()) == cross


@pytest.mark.parametrize("name", NAMES)
def test_asking_for_rows_changes_no_output(name: str) -> None:
    model, inputs = tiny_jump_model(name), tiny_inputs(name)
    assert_joins(model, inputs)
    without = run(model, inputs)
    assert torch.equal(run(model, inputs, output_attentions=True), without)
    with torch.no_grad():
        outputs = model(**inputs)
    assert outputs.get("attentions") is None  # the next forward does not ask


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_rows_of_ordinary_heads_are_those_of_eager_attention(name: str) -> None:
    eager, inputs = tiny_model(name), tiny_inputs(name, (LENGTH, 7))
    eager.set_attn_implementation("eager")
    model = tiny_jump_model(name, layers=(2,))
    with torch.no_grad():
        wanted = eager(**inputs, output_attentions=True).attentions
        got = model(**inputs, output_attentions=True).attentions
    valid = inputs["attention_mask"].bool()[:, None, :, None]
    for layer in (0, 1):
        assert_close(got[layer] * valid, wanted[layer] * valid, rtol=0, atol=1e-6)
    assert_close(got[2][:, [1, 3]] * valid, wanted[2][:, [1, 3]] * valid, rtol=0, atol=1e-6)
    assert not torch.allclose(got[2][:, [0, 2]], wanted[2][:, [0, 2]], atol=1e-3)


def test_a_part_of_the_model_called_alone_gives_rows() -> None:
    model, inputs = tiny_jump_model("gpt2"), tiny_inputs("gpt2")
    with torch.no_grad():
        outputs = model.transformer(**inputs, output_attentions=True)
        wanted = model(**inputs, output_attentions=True)
    assert len(outputs.attentions) == 3
    assert torch.equal(outputs.attentions[2], wanted.attentions[2])
    assert main_output(outputs).shape == (3, LENGTH, 32)


def test_a_configuration_that_asks_for_rows_gets_them() -> None:
    model, inputs = tiny_model("bert"), tiny_inputs("bert")
    model.set_attn_implementation("eager")
    model.config.output_attentions = True
    attach(model, tiny_config())
    with torch.no_grad():
        assert len(model(**inputs).attentions) == 3
