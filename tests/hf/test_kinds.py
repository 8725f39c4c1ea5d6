"""Jump heads and triplet heads in one model: each reads as it does alone, and keeps its place."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.testing import assert_close

from jat_graph.config import JatConfig
from jat_graph.hf import (
    TripletConfig,
    attach,
    attached_config,
    capture_scores,
    detach,
    disabled,
    from_pretrained,
)
from tests.hf.models import LENGTH, run, tiny_config, tiny_inputs, tiny_jump_model, tiny_model
from tests.hf.test_adapter import tiny_clip
from tests.hf.test_triplet import ENCODERS, HEAD_DIM, traces

JUMP = tiny_config(heads=1)
TRIPLETS = TripletConfig(seed=5)  # the last three of four heads
ORDERS = [
    pytest.param((JUMP, TRIPLETS), id="jump first"),
    pytest.param((TRIPLETS, JUMP), id="last"),
]


def triplet_config(model: nn.Module) -> TripletConfig | None:
    """Return the settings of a model's triplet heads, as they are saved."""
    settings = getattr(model.config, "triplet", None)
    return None if settings is None else TripletConfig.from_dict(settings)


def both(name: str, *configs: Any) -> hf.PreTrainedModel:
    """Return a tiny model with heads of both kinds."""
    model = tiny_model(name)
    for config in configs or (JUMP, TRIPLETS):
        attach(model, config)
    return model


def first_layer(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Return what the heads of BERT's first layer read, ``[B, L, H, D]``."""
    seen: list[Tensor] = []
    module: Any = model.encoder.layer[0].attention.self
    hook = module.register_forward_hook(lambda *call: seen.append(call[-1][0]))
    run(model, inputs)
    hook.remove()
    return seen[0].unflatten(-1, (-1, HEAD_DIM))


@pytest.mark.parametrize("configs", ORDERS)
def test_each_kind_reads_what_it_reads_alone(configs: tuple[Any, Any]) -> None:
    inputs = tiny_inputs("bert", (LENGTH, 8, 5))
    got = first_layer(both("bert", *configs), inputs)
    jumping = first_layer(attach(tiny_model("bert"), JUMP), inputs)
    triplets = first_layer(attach(tiny_model("bert"), TRIPLETS), inputs)
    base = first_layer(tiny_model("bert"), inputs)
    assert_close(got[:, :, :1], jumping[:, :, :1], rtol=0, atol=1e-6)
    assert_close(got[:, :, 1:], triplets[:, :, 1:], rtol=0, atol=1e-6)
    assert not torch.allclose(got[:, :, :1], base[:, :, :1], atol=1e-3)
    assert not torch.allclose(got[:, :, 1:], base[:, :, 1:], atol=1e-3)


@pytest.mark.parametrize("name", ENCODERS)
def test_all_are_switched_off_and_taken_off_together(name: str) -> None:
    model, inputs = tiny_model(name), tiny_inputs(name, (LENGTH, 8, 5))
    base, settings, weights = run(model, inputs), model.config.to_dict(), list(model.state_dict())
    attach(attach(model, JUMP), TRIPLETS)
    assert (attached_config(model), triplet_config(model)) == (JUMP, TRIPLETS)
    assert not torch.allclose(run(model, inputs), base, atol=1e-3)
    with disabled(model):
        assert torch.equal(run(model, inputs), base)
    assert traces(detach(model)) == []
    assert (model.config.to_dict(), list(model.state_dict())) == (settings, weights)
    assert torch.equal(run(model, inputs), base)


def test_one_kind_is_taken_off_and_the_other_keeps_what_it_learned() -> None:
    model, inputs = both("bert"), tiny_inputs("bert")
    with torch.no_grad():
        model.encoder.layer[0].attention.self.key2.weight.add_(1.0)
    detach(model, JatConfig)
    alone = run(model, inputs)
    assert (attached_config(model), triplet_config(model)) == (None, TRIPLETS)
    with pytest.raises(ValueError, match="must have jump or cluster heads, got a BertModel"):
        detach(model, JatConfig)
    attach(model, JUMP)
    assert not torch.allclose(run(model, inputs), alone, atol=1e-3)
    assert torch.equal(run(detach(model, JatConfig), inputs), alone)
    detach(attach(model, JUMP), TripletConfig)
    assert torch.equal(run(model, inputs), run(attach(tiny_model("bert"), JUMP), inputs))
    assert not any("key2" in key for key in model.state_dict())


def test_a_kind_is_attached_once_and_a_head_given_once() -> None:
    model, inputs = both("bert"), tiny_inputs("bert")
    before = run(model, inputs)
    for config, word in ((JUMP, "jump"), (TRIPLETS, "triplet")):
        message = f"BertModel already has {word} heads; detach them first"
        with pytest.raises(ValueError, match=message):
            attach(model, config)
    assert torch.equal(run(model, inputs), before)
    jumping = tiny_jump_model("bert")
    before = run(jumping, inputs)
    with pytest.raises(ValueError, match="head 2 of layer 0 is a jump head and cannot be a tr"):
        attach(jumping, TRIPLETS)
    assert torch.equal(run(jumping, inputs), before)
    detach(jumping)
    attach(jumping, TripletConfig(layers=(0, 2)))
    with pytest.raises(ValueError, match="head 2 of layer 0 is a triplet head and cannot be a"):
        attach(jumping, tiny_config())
    attach(jumping, tiny_config(layers=(1,)))  # other layers


def test_only_the_whole_model_gets_another_kind() -> None:
    torch.manual_seed(0)
    model = hf.BartForConditionalGeneration(tiny_model("bart").config).eval()
    attach(model, tiny_config(layers=(1,)))
    with pytest.raises(ValueError, match="must be the one with the other heads, got a BartE"):
        attach(model.model.encoder, TripletConfig(layers=(0,)))
    attach(model, TripletConfig(layers=(0,)))
    with pytest.raises(ValueError, match="BartAttention of layer 2 is causal: triplet heads"):
        attach(detach(model), TripletConfig())
    towers, _ = tiny_clip()
    attach(towers.text_model, JUMP)
    with pytest.raises(ValueError, match="must be the one with the other heads, got a CLIP"):
        attach(towers, TripletConfig(layers=(2, 3)))


def test_within_a_pattern_there_are_no_triplet_heads() -> None:
    pattern = tiny_config(heads=1, pattern="window:4")
    for configs in ((pattern, TRIPLETS), (TRIPLETS, pattern)):
        with pytest.raises(ValueError, match="pattern must be None beside triplet heads"):
            both("bert", *configs)


def test_scores_of_jump_heads_are_recorded_beside_triplet_heads() -> None:
    model, inputs = both("bert"), tiny_inputs("bert")
    with torch.no_grad(), capture_scores(model) as layers:
        outputs = model(**inputs, output_attentions=True)
    assert [(layer.layer, layer.heads) for layer in layers] == [(0, (0,)), (1, (0,)), (2, (0,))]
    assert not outputs.attentions  # triplet heads have none, and fewer rows would be shifted ones
    with disabled(model), torch.no_grad():
        assert len(model(**inputs, output_attentions=True).attentions) == 3
    with (
        pytest.raises(ValueError, match="must have jump heads"),
        capture_scores(attach(tiny_model("bert"), TRIPLETS)),
    ):
        pass


@pytest.mark.parametrize("name", ENCODERS)
def test_a_model_comes_back_with_both(name: str, tmp_path: Path) -> None:
    model, inputs = both(name), tiny_inputs(name, (LENGTH, 8))
    with torch.no_grad():  # other weights than those that the seed gives
        for key, weight in model.named_parameters():
            if "key2" in key:
                weight += 1.0
    want, twin = run(model, inputs), copy.deepcopy(model)
    model.save_pretrained(tmp_path)
    kwargs = {"add_pooling_layer": False} if name == "vit" else {}
    loaded = from_pretrained(hf.AutoModel, tmp_path, **kwargs)
    assert (attached_config(loaded), triplet_config(loaded)) == (JUMP, TRIPLETS)
    detach(model)
    assert torch.equal(run(loaded, inputs), want)
    assert torch.equal(run(twin, inputs), want)


@pytest.mark.parametrize("config", [JUMP, TRIPLETS], ids=["jat", "triplet"])
def test_folders_that_name_the_kind_as_their_attention_load(config: Any, tmp_path: Path) -> None:
    """Folders of version 0.1 with triplet heads name ``"triplet"``."""
    model, inputs = attach(tiny_model("bert"), config), tiny_inputs("bert")
    model.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["attn_implementation"] = "jat" if config is JUMP else "triplet"
    (tmp_path / "config.json").write_text(json.dumps(settings))
    loaded = from_pretrained(hf.AutoModel, tmp_path)
    assert torch.equal(run(loaded, inputs), run(model, inputs))
    if config is JUMP:  # triplets have weights of their own
        assert torch.equal(run(hf.AutoModel.from_pretrained(tmp_path), inputs), run(model, inputs))
    assert detach(loaded).config._attn_implementation == "sdpa"


def test_gradients_reach_both_kinds() -> None:
    model, inputs = both("bert").train(), tiny_inputs("bert")
    model(**inputs).last_hidden_state[..., 0].square().sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters() if ".self." in name}
    assert all(grad is not None and bool(grad.isfinite().all()) for grad in grads.values())
    assert all(bool(grad.any()) for name, grad in grads.items() if "key2.weight" in name)
