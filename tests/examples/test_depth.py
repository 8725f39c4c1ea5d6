"""Layers taken off the top of a model, and copied on top."""

from pathlib import Path

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from examples.depth import change_depth
from jat_graph.hf import attach, attached_config
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_jump_model, tiny_model

DEPTH = 3  # of the tiny models


def layers(model: nn.Module) -> nn.ModuleList:
    """Return the list of layers, whatever it is called."""
    return next(module for module in model.modules() if isinstance(module, nn.ModuleList))


def on_top(model: nn.Module, hidden: Tensor, times: int) -> Tensor:
    """Run the top layer so often, on hidden states without padding."""
    for _ in range(times):
        out = layers(model)[-1](hidden)
        hidden = out[0] if isinstance(out, tuple) else out
    return hidden


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["bert", "distilbert", "electra"])
def test_a_shallower_model_stops_early_and_a_deeper_one_repeats_its_top(
    name: str, depth: int
) -> None:
    model, inputs = tiny_model(name), tiny_inputs(name)
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True).hidden_states
        want = states[min(depth, DEPTH)]
        want = on_top(model, want, max(0, depth - DEPTH))
    assert change_depth(model, depth) is model
    assert len(layers(model)) == depth == model.config.num_hidden_layers
    assert torch.equal(run(model, inputs), want)


def test_copies_share_no_weight() -> None:
    model = change_depth(tiny_model("bert"), DEPTH + 1)
    top, copied = layers(model)[-2:]
    pairs = list(zip(top.parameters(), copied.parameters(), strict=True))
    assert all(torch.equal(one, other) and one is not other for one, other in pairs)
    with torch.no_grad():
        next(copied.parameters()).zero_()
    assert not torch.equal(next(top.parameters()), next(copied.parameters()))


@pytest.mark.parametrize("depth", [2, 5])
def test_jump_heads_and_caches_count_the_new_layers(depth: int) -> None:
    model, inputs = change_depth(tiny_model("gpt2"), depth), tiny_inputs("gpt2")
    attach(model, tiny_config(layers=(depth - 1,)))
    assert attached_config(model) == tiny_config(layers=(depth - 1,))
    choice = {"max_new_tokens": 4, "do_sample": False}
    cached, whole = (model.generate(**inputs, **choice, use_cache=use) for use in (True, False))
    assert torch.equal(cached, whole)


@pytest.mark.parametrize("depth", [2, 5])
def test_layers_that_are_listed_by_kind_are_listed_anew(depth: int, tmp_path: Path) -> None:
    inputs = tiny_inputs("gpt2")
    sizes = {"hidden_size": 32, "intermediate_size": 48, "vocab_size": 50}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = hf.Qwen2Model(hf.Qwen2Config(**sizes, **heads, num_hidden_layers=DEPTH)).eval()
    assert model.config.layer_types == ["full_attention"] * DEPTH
    change_depth(model, depth)
    assert model.config.layer_types == ["full_attention"] * depth
    model.save_pretrained(tmp_path)
    assert torch.equal(run(hf.AutoModel.from_pretrained(tmp_path), inputs), run(model, inputs))


def test_a_head_on_top_stays() -> None:
    torch.manual_seed(0)
    model = hf.BertForSequenceClassification(tiny_model("bert").config).eval()
    assert len(layers(change_depth(model, 1))) == 1
    assert run(model, tiny_inputs("bert")).shape == (3, 2)


@pytest.mark.parametrize(
    ("model", "depth", "message"),
    [
        (tiny_model("bert"), 0, "depth must be at least 1, got 0"),
        (tiny_model("bert"), 1.5, "depth must be an integer, got 1.5"),
        (tiny_model("albert"), 2, "depth needs a model with one stack of layers, got AlbertModel"),
        (tiny_model("bart"), 2, "depth needs a model with one stack of layers, got BartModel"),
        (tiny_model("modernbert"), 2, "whose layers are all of one kind, got ModernBertModel"),
        (tiny_jump_model("bert"), 2, "depth must be changed before heads are attached"),
        (nn.Linear(2, 2), 2, "model must be a model of transformers, or hold one, got Linear"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    model: nn.Module, depth: int, message: str
) -> None:
    before = [name for name, _ in model.named_modules()]
    with pytest.raises(ValueError, match=message) as caught:
        change_depth(model, depth)
    assert "\n" not in str(caught.value)
    assert [name for name, _ in model.named_modules()] == before
