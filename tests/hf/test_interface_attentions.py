"""``output_attentions=True``: a row for every layer, and rows that give the layer's output."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from jat_graph.hf import disabled
from tests.hf.models import ARCHITECTURES, LENGTH, main_output, tiny_inputs, tiny_jump_model

NAMES = (*ARCHITECTURES, "opt")
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


@pytest.mark.parametrize("lengths", [(LENGTH, LENGTH), (LENGTH, 7)])
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_rows_times_values_are_the_outputs(
    name: str, enabled: bool, lengths: tuple[int, ...], seen: list[Any]
) -> None:
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


def test_a_part_of_the_model_called_alone_gives_rows() -> None:
    model, inputs = tiny_jump_model("gpt2"), tiny_inputs("gpt2")
    with torch.no_grad():
        outputs = model.transformer(**inputs, output_attentions=True)
        wanted = model(**inputs, output_attentions=True)
    assert len(outputs.attentions) == 3
    assert torch.equal(outputs.attentions[2], wanted.attentions[2])
    assert main_output(outputs).shape == (3, LENGTH, 32)
