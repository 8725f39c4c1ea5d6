"""Other settings for jump heads for a while, which keep what they have learned."""

from typing import Any

import pytest
import torch
from torch_geometric.nn import GCNConv

from jat_graph import attach, calibrate
from jat_graph.hf import attached_config
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_model


@pytest.mark.parametrize("conv", [GCNConv, lambda dim: GCNConv(dim, dim)])
def test_layers_stay_where_they_fit(conv: Any) -> None:
    model, inputs = attach(tiny_model("bert"), tiny_config(), conv=conv), tiny_inputs("bert")
    base = set(tiny_model("bert").state_dict())
    learned = {key: value for key, value in model.state_dict().items() if key not in base}
    assert len(learned) == 9  # strength, weight and bias of each layer
    for tensor in learned.values():
        tensor.normal_()
    config, before = attached_config(model), run(model, inputs)
    assert config is not None
    assert calibrate(model, [inputs], density=0.3) != config
    assert attached_config(model) == config
    assert torch.equal(run(model, inputs), before)
