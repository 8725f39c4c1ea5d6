"""A model with heads of ours stays on our attention function, or says that it does not."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from jat_graph.hf import attached_config, detach, disabled, from_pretrained
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_jump_model

NAMES = ["bert", "gpt2", "bart"]
NOTICED = r"runs on '.*', but its model has heads that need 'jat'; take them off by jat_graph"


@pytest.mark.parametrize("wanted", ["sdpa", "eager", {"": "sdpa"}])
@pytest.mark.parametrize("name", NAMES)
def test_another_attention_is_noticed_until_the_heads_are_off(name: str, wanted: Any) -> None:
    model, inputs = tiny_jump_model(name), tiny_inputs(name)
    jumping = run(model, inputs)
    twins = (copy.deepcopy(model), pickle.loads(pickle.dumps(model)))
    for each in (model, *twins):
        each.set_attn_implementation(wanted)
        with pytest.raises(ValueError, match=NOTICED):
            run(each, inputs)
        each.set_attn_implementation("jat")
        assert torch.equal(run(each, inputs), jumping)
    assert detach(model).config._attn_implementation == "sdpa"
    model.set_attn_implementation("eager")
    run(model, inputs)


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_that_was_written_to_is_noticed(name: str, tmp_path: Path) -> None:
    model, inputs = tiny_jump_model(name), tiny_inputs(name)
    jumping = run(model, inputs)
    model.config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match=NOTICED):
        run(model, inputs)
    with pytest.raises(ValueError, match=NOTICED), disabled(model):
        run(model, inputs)
    inner: nn.Module = model.transformer if name == "gpt2" else model.encoder
    assert attached_config(inner) == tiny_config()
    model.save_pretrained(tmp_path)  # as what it is: a model with jump heads
    assert torch.equal(run(from_pretrained(type(model), tmp_path), inputs), jumping)
    assert detach(model).config._attn_implementation == "sdpa"
