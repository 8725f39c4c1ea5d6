"""What is attached, and how it is found."""

import pytest
from torch import nn

from jat_graph.hf import attached_config
from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.jump_layer import JumpLayer
from jat_graph.hf.state import layer_state
from tests.hf.models import tiny_config, tiny_jump_model, tiny_model


def test_settings_are_found_from_the_model_a_part_and_a_wrapper() -> None:
    model = tiny_jump_model("bert")
    for place in (model, model.encoder.layer[1], nn.Sequential(model)):
        assert attached_config(place) == tiny_config()
        assert find_attachment(place) is find_attachment(model)
    assert attached_config(model.embeddings) is None
    assert attached_config(tiny_model("bert")) is None


def test_states_are_no_parameters_and_are_shared() -> None:
    model = tiny_jump_model("bert", layers=(0,))
    assert list(model.state_dict()) == list(tiny_model("bert").state_dict())
    states = [state for module in model.modules() if (state := layer_state(module))]
    assert len(states) == 3
    assert len({id(state.attachment) for state in states}) == 1
    assert [bool(state.heads) for state in states] == [True, False, False]


@pytest.mark.parametrize(
    ("hop_weights", "ordinary"),
    [
        ((1.0,), True),
        ((1.0, 0.0), True),
        ((0.0, 1.0), False),
        ((0.5,), False),
        ({(0,): (1.0,), (1,): (1.0, 0.0)}, True),
        ({(0,): (1.0,), (1,): (0.0, 1.0)}, False),
    ],
)
def test_a_layer_knows_whether_it_is_ordinary(hop_weights: object, ordinary: bool) -> None:
    config = tiny_config(hop_weights=hop_weights, heads=2)
    assert JumpLayer(0, (0, 1), 4, config).at_rest(nn.Identity()) == ordinary
