"""Other settings for jump heads, which keep what they have learned."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close
from torch_geometric.nn import GCNConv

from jat_graph.config import JatConfig
from jat_graph.hf import attach, attached_config
from jat_graph.hf.adapter import attach_again, learned_by_heads
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_model


def test_strengths_stay_where_they_fit() -> None:
    model, inputs = attach(tiny_model("bert"), JatConfig.stones(threshold=1.0)), tiny_inputs("bert")
    strengths = learned_by_heads(model)
    assert len(strengths) == 3
    for strength in strengths.values():
        strength.normal_()
    before = run(model, inputs)
    attach_again(model, JatConfig.stones(threshold=0.5), strengths)
    assert attached_config(model) == JatConfig.stones(threshold=0.5)
    found = learned_by_heads(model)
    assert all(torch.equal(found[name], strengths[name]) for name in strengths)
    assert all(module.requires_grad for module in model.parameters())
    attach_again(model, JatConfig.stones(heads=1), strengths)
    assert not any(strength.any() for strength in learned_by_heads(model).values())
    attach_again(model, None, strengths)
    assert attached_config(model) is None
    attach_again(model, JatConfig.stones(threshold=1.0), strengths)
    assert_close(run(model, inputs), before, rtol=0, atol=0)


@pytest.mark.parametrize("conv", [GCNConv, lambda dim: GCNConv(dim, dim)])
def test_layers_stay_where_they_fit(conv: Any) -> None:
    model, inputs = attach(tiny_model("bert"), tiny_config(), conv=conv), tiny_inputs("bert")
    learned = learned_by_heads(model)
    assert len(learned) == 9  # strength, weight and bias of each layer
    for tensor in learned.values():
        tensor.normal_()
    config, before = attached_config(model), run(model, inputs)
    assert config is not None
    attach_again(model, config.replace(threshold=config.graph.threshold), learned)
    assert_close(run(model, inputs), before, rtol=0, atol=0)
