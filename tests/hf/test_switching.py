"""A model with heads of ours stays on our attention function, or says that it does not."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

from jat_graph.hf import TripletConfig, attach, attached_config, detach, disabled, from_pretrained
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_jump_model, tiny_model
from tests.hf.test_adapter import lora, run_clip, tiny_clip

REFUSED = r"must stay 'jat' while heads are attached, got .*; take them off by jat_graph\.detach"
NAMES = ["bert", "gpt2", "bart"]


@pytest.mark.parametrize("wanted", ["sdpa", "eager", {"": "sdpa"}])
@pytest.mark.parametrize("name", NAMES)
def test_another_attention_is_refused_until_the_heads_are_off(name: str, wanted: Any) -> None:
    model, inputs = tiny_jump_model(name), tiny_inputs(name)
    jumping = run(model, inputs)
    parts = [part for part in model.modules() if isinstance(part, hf.PreTrainedModel)]
    for part in parts:
        with pytest.raises(ValueError, match=REFUSED):
            part.set_attn_implementation(wanted)
    model.set_attn_implementation("jat")
    assert torch.equal(run(model, inputs), jumping)
    detach(model)
    for part in parts:
        part.set_attn_implementation("eager")
        assert part.config._attn_implementation == "eager"


def test_it_is_refused_with_triplet_heads_too() -> None:
    model = attach(tiny_model("bert"), TripletConfig())
    with pytest.raises(ValueError, match=REFUSED):
        model.set_attn_implementation("sdpa")


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_it_is_refused_through_a_peft_model() -> None:
    model = lora(tiny_jump_model("bert"))
    with pytest.raises(ValueError, match=REFUSED):
        model.set_attn_implementation("sdpa")
    detach(model)
    model.set_attn_implementation("eager")
    assert model.base_model.model.config._attn_implementation == "eager"


def test_it_is_refused_in_both_towers() -> None:
    model, inputs = tiny_clip()
    attach(model, tiny_config(threshold=0.0, heads=2))
    jumping = run_clip(model, inputs)
    for part in (model, model.text_model, model.vision_model):
        with pytest.raises(ValueError, match=REFUSED):
            part.set_attn_implementation("sdpa")
    assert torch.equal(run_clip(model, inputs), jumping)
    model.config.text_config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match="CLIPAttention runs on 'sdpa', but its model has heads"):
        run_clip(model, inputs)


def test_copies_are_as_strict_as_their_originals_and_as_free() -> None:
    import copy
    import pickle

    model = tiny_jump_model("bert")
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with pytest.raises(ValueError, match=REFUSED):
            twin.set_attn_implementation("sdpa")
        detach(twin).set_attn_implementation("eager")
    with pytest.raises(ValueError, match=REFUSED):
        model.set_attn_implementation("sdpa")


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_that_was_written_to_is_noticed(name: str, tmp_path: Path) -> None:
    model, inputs = tiny_jump_model(name), tiny_inputs(name)
    jumping = run(model, inputs)
    model.config._attn_implementation = "sdpa"
    message = r"runs on 'sdpa', but its model has heads that need 'jat'; take them off by jat_graph"
    with pytest.raises(ValueError, match=message):
        run(model, inputs)
    with pytest.raises(ValueError, match=message), disabled(model):
        run(model, inputs)
    inner: nn.Module = model.transformer if name == "gpt2" else model.encoder
    assert attached_config(inner) == tiny_config()
    model.save_pretrained(tmp_path)  # as what it is: a model with jump heads
    assert torch.equal(run(from_pretrained(type(model), tmp_path), inputs), jumping)
    assert detach(model).config._attn_implementation == "sdpa"


def test_a_larger_model_around_it_changes_nothing_unnoticed() -> None:
    model, inputs = tiny_clip()
    attach(model.text_model, tiny_config(heads=2))
    run_clip(model, inputs)
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="CLIPAttention runs on 'eager'"):
        run_clip(model, inputs)
