"""Models that cannot know what is asked."""

import torch
from transformers import AutoModel

from jat_graph.config import JatConfig
from jat_graph.hf import attach
from jat_graph.probes.controls import random_weights
from tests.hf.models import tiny_model


def test_random_weights_are_of_the_seed_and_leave_the_model_alone(minilm_path: str) -> None:
    model = AutoModel.from_pretrained(minilm_path)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, same, other = (random_weights(model, seed) for seed in (1, 1, 2))
    assert torch.rand(1) == expected  # nobody's random numbers are used up
    name = "encoder.layer.0.attention.self.query.weight"
    assert torch.equal(one.state_dict()[name], same.state_dict()[name])
    assert not torch.equal(one.state_dict()[name], other.state_dict()[name])
    assert not torch.equal(one.state_dict()[name], before[name])
    assert all(torch.equal(weight, before[key]) for key, weight in model.state_dict().items())
    assert not one.training


def test_the_twin_of_a_model_with_jump_heads_has_none() -> None:
    model = tiny_model("bert")
    inputs = {"input_ids": torch.arange(1, 9)[None]}
    with torch.no_grad():
        plain = random_weights(model)(**inputs).last_hidden_state
        attach(model, JatConfig())
        twin = random_weights(model)
        assert torch.equal(twin(**inputs).last_hidden_state, plain)
    assert model.config._attn_implementation == "jat"
