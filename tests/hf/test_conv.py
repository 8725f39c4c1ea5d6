"""Layers of PyG in the heads of pretrained models."""

from functools import partial
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn
from torch.testing import assert_close
from torch_geometric.nn import APPNP, GATv2Conv, GCNConv, Linear

from jat_graph import JatConfig, attach, calibrate, detach, disabled, from_pretrained
from jat_graph.hf import attached_config
from jat_graph.nn import JumpConv, StoneConv
from tests.hf.models import (
    DECODERS,
    LENGTH,
    run,
    strengthened,
    tiny_config,
    tiny_inputs,
    tiny_model,
)
from tests.hf.test_interface_training import gradients


def custom(dim: int) -> nn.Module:
    """Make a layer that no settings can build."""
    return GCNConv(dim, dim, improved=True)


def jumping(name: str, conv: Any, **settings: Any) -> hf.PreTrainedModel:
    config = tiny_config(**settings)
    return strengthened(attach(tiny_model(name), config, conv=conv))


@pytest.mark.parametrize("name", ["bert", "albert", "modernbert", "llama", "bart"])
def test_jump_conv_is_the_fast_path(name):
    inputs = tiny_inputs(name, (LENGTH, 7, 3)) | ({"use_cache": False} if name in DECODERS else {})
    layered = jumping(name, partial(JumpConv, out_channels=None)).double()
    fast = strengthened(attach(tiny_model(name), tiny_config(strength="learned"))).double()
    assert_close(run(layered, inputs), run(fast, inputs), rtol=1e-9, atol=1e-9)
    with disabled(fast):
        assert not torch.allclose(run(fast, inputs), run(layered, inputs))


@pytest.mark.parametrize("conv", [partial(APPNP, K=3, alpha=0.1), custom])
def test_at_strength_0_it_is_the_base_and_detach_brings_that_back(conv):
    base, inputs = tiny_model("bert"), tiny_inputs("bert", (LENGTH, 7))
    wanted, names = run(base, inputs), dict(base.named_parameters()).keys()
    model = attach(base, tiny_config(), conv=conv)
    assert torch.equal(run(model, inputs), wanted)
    strengthened(model)
    assert not torch.allclose(run(model, inputs), wanted)
    assert dict(detach(model).named_parameters()).keys() == names
    assert torch.equal(run(model, inputs), wanted)


@pytest.mark.parametrize(
    ("conv", "kept"),
    [
        (GCNConv, {"layer": "GCNConv"}),
        (
            partial(GATv2Conv, heads=1, edge_dim=1),
            {"layer": "GATv2Conv", "heads": 1, "edge_dim": 1},
        ),
        (custom, "given"),
    ],
)
def test_layers_are_saved_and_loaded(conv, kept, tmp_path):
    model, inputs = jumping("bert", conv), tiny_inputs("bert", (LENGTH, 7))
    assert attached_config(model).conv == kept
    model.save_pretrained(tmp_path)
    given = {"conv": conv} if kept == "given" else {}
    loaded = from_pretrained(hf.AutoModel, tmp_path, **given).eval()
    assert torch.equal(run(loaded, inputs), run(model, inputs))
    if kept == "given":
        with pytest.raises(ValueError, match="conv must be given"):
            from_pretrained(hf.AutoModel, tmp_path)


def test_layers_train_and_are_drawn_from_a_seed_of_their_own():
    state = torch.random.get_rng_state()
    model = jumping("bert", GATv2Conv).train()
    again = jumping("bert", GATv2Conv)
    torch.random.set_rng_state(state)
    for (name, one), (_, two) in zip(
        model.named_parameters(), again.named_parameters(), strict=True
    ):
        assert torch.equal(one, two), name
    found = gradients(model, tiny_inputs("bert", (LENGTH, 7)))
    own = {name for name, _ in model.named_parameters() if ".jump_conv." in name}
    assert own
    assert own <= found.keys()
    assert any(found[name].abs().max() > 1e-8 for name in own)


def test_a_model_generates_without_a_cache_only():
    model, inputs = jumping("llama", GCNConv), tiny_inputs("llama", (5,))
    options = {"max_new_tokens": 3, "do_sample": False}
    assert model.generate(**inputs, use_cache=False, **options).shape == (1, 8)
    with pytest.raises(ValueError, match="with layers of PyG need the queries of all tokens"):
        model.generate(**inputs, **options)


def test_only_jump_heads_have_layers():
    with pytest.raises(ValueError, match="conv needs a JatConfig of jump heads, got cluster heads"):
        attach(tiny_model("bert"), JatConfig.clustered(), conv=GCNConv)
    with pytest.raises(ValueError, match="causal: a layer on stones would use later tokens"):
        attach(tiny_model("gpt2"), JatConfig.stones(key_selection="all"), conv=StoneConv)
    model = tiny_model("bert")
    with pytest.raises(ValueError, match=r"or a factory .* got the class Linear"):
        attach(model, tiny_config(), conv=Linear)
    with pytest.raises(ValueError, match="GCNConv must give features"):
        attach(model, tiny_config(), conv=lambda size: GCNConv(size, 2 * size))
    assert attached_config(model) is None


@pytest.mark.parametrize("conv", [GCNConv, lambda dim: GCNConv(dim, dim)])
def test_layers_stay_where_other_settings_are_tried(conv):
    model, inputs = jumping("bert", conv), tiny_inputs("bert")
    config, before = attached_config(model), run(model, inputs)
    assert calibrate(model, [inputs], density=0.3) != config
    assert attached_config(model) == config
    assert torch.equal(run(model, inputs), before)
