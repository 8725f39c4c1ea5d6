"""Models that cannot know what is asked."""

import torch
from transformers import AutoModel

from jat_graph.probes.controls import random_weights


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
