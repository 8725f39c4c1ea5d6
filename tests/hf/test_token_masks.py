"""Silent tokens stay silent, whichever way a model is called."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jat_graph.hf import attach, detach
from tests.hf.models import DECODERS, LENGTH, TEXT, main_output, run, tiny_inputs, tiny_model
from tests.hf.test_interface_training import weighted
from tests.hf.test_stones import SILENT, stones, stones_inputs, tiny_stones

PARTS = [name for name in TEXT if name not in ("gpt2", "llama", "bart")]  # without a head on top


def forward(model: Any, inputs: dict[str, Any]) -> Tensor:
    """Call a model as sentence-transformers does: hooks of the model itself do not run."""
    with torch.no_grad():
        return main_output(model.forward(**inputs))


@pytest.mark.parametrize("name", TEXT)
def test_forward_alone_knows_who_is_silent(name: str) -> None:
    model, inputs = tiny_stones(name), stones_inputs(name, (LENGTH, 8))
    want = run(model, inputs)
    assert not torch.equal(run(tiny_stones(name, tokens=()), inputs), want)
    parts = {"gpt2": "transformer", "llama": "model"}
    inner = getattr(model, parts[name]) if name in parts else model
    wanted = want if inner is model else run(inner, inputs)
    for _ in range(2):
        assert torch.equal(forward(inner, inputs), wanted)
        assert torch.equal(run(model, inputs), want)


def test_layers_that_do_not_jump_are_not_waited_for() -> None:
    model, inputs = tiny_stones("bert", layers=(1,)), tiny_inputs("bert", (LENGTH, 8))
    other = inputs | {"input_ids": inputs["input_ids"].flip(1)}
    for batch in (inputs, other, inputs):
        assert torch.equal(forward(model, batch), run(model, batch))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_remembers_what_each_forward_heard(reentrant: bool) -> None:
    model = tiny_stones("bert").train()
    first = tiny_inputs("bert", (LENGTH, LENGTH))
    second = first | {"input_ids": first["input_ids"].flip(1)}
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0

    def gradients() -> dict[str, Tensor]:
        """Two forwards before one backward, as a contrastive loss has them."""
        model.zero_grad()
        left, right = (main_output(model.forward(**batch)) for batch in (first, second))
        weighted(left * right).backward()
        return {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}

    wanted = gradients()
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    got = gradients()
    assert sum("strength" in key for key in wanted) == 3
    assert all(torch.equal(got[key], grad) for key, grad in wanted.items())


@pytest.mark.parametrize("name", [name for name in PARTS if name not in DECODERS])
def test_of_embeddings_nobody_knows_who_is_silent(name: str) -> None:
    model, inputs = tiny_stones(name), stones_inputs(name, (LENGTH, 8))
    forward(model, inputs)
    embeddings = model.get_input_embeddings()
    run(model, inputs)  # told as ever: the embedding is heard, and nobody asks
    ids = inputs.pop("input_ids")
    embedded = inputs | {"inputs_embeds": embeddings.weight[ids]}
    run(model, embedded)
    with pytest.raises(ValueError, match="was not told which tokens are excluded"):
        forward(model, embedded)


def test_nobody_listens_once_the_heads_are_off() -> None:
    model = tiny_model("bert")
    hooks = [len(module._forward_pre_hooks) for module in model.modules()]
    attach(model, stones(excluded_token_ids=SILENT))
    assert [len(module._forward_pre_hooks) for module in model.modules()] > hooks
    assert [len(module._forward_pre_hooks) for module in detach(model).modules()] == hooks
