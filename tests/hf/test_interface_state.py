"""What is attached is found from the model, a part and a wrapper, and is no parameter."""

from torch import nn

from jat_graph.hf import attached_config
from tests.hf.models import tiny_config, tiny_jump_model, tiny_model


def test_settings_are_found_from_the_model_a_part_and_a_wrapper() -> None:
    model = tiny_jump_model("bert", layers=(0,))
    for found in (model, model.encoder.layer[1], nn.Sequential(model)):
        assert attached_config(found) == tiny_config(layers=(0,))
    assert attached_config(model.embeddings) is None
    assert attached_config(tiny_model("bert")) is None
    assert list(model.state_dict()) == list(tiny_model("bert").state_dict())
