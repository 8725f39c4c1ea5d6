"""Excluded tokens stay excluded, whichever way a model is called."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.hf.models import DECODERS, LENGTH, TEXT, main_output, run
from tests.hf.test_interface_training import weighted
from tests.hf.test_stones import stones_inputs, tiny_stones

PARTS = [name for name in TEXT if name not in ("gpt2", "llama", "bart")]  # without a head on top


def forward(model: Any, inputs: dict[str, Any]) -> Tensor:
    """Call a model as sentence-transformers does: hooks of the model itself do not run."""
    with torch.no_grad():
        return main_output(model.forward(**inputs))


@pytest.mark.parametrize("name", TEXT)
def test_forward_alone_knows_the_excluded_tokens(name: str) -> None:
    model, inputs = tiny_stones(name), stones_inputs(name, (LENGTH, 8))
    want = run(model, inputs)
    assert not torch.equal(run(tiny_stones(name, tokens=()), inputs), want)
    parts = {"gpt2": "transformer", "llama": "model"}
    inner = getattr(model, parts[name]) if name in parts else model
    wanted = want if inner is model else run(inner, inputs)
    for _ in range(2):
        assert torch.equal(forward(inner, inputs), wanted)
        assert torch.equal(run(model, inputs), want)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_checkpointing_remembers_the_tokens_of_each_forward(name: str, reentrant: bool) -> None:
    model = tiny_stones(name).train()
    first = stones_inputs(name, (LENGTH, LENGTH))
    second = first | {"input_ids": first["input_ids"].flip(1)}
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0

    def gradients() -> dict[str, Tensor]:
        """Two forwards before one backward, as a contrastive loss has them."""
        model.zero_grad()
        left, right = (main_output(model(**batch)) for batch in (first, second))
        weighted(left * right).backward()
        return {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}

    wanted = gradients()
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    got = gradients()
    assert sum("strength" in key for key in wanted) == 3
    assert all(torch.equal(got[key], grad) for key, grad in wanted.items())


@pytest.mark.parametrize("name", [name for name in PARTS if name not in DECODERS])
def test_of_embeddings_nobody_knows_the_excluded_tokens(name: str) -> None:
    model, inputs = tiny_stones(name), stones_inputs(name, (LENGTH, 8))
    forward(model, inputs)
    embeddings = model.get_input_embeddings()
    run(model, inputs)
    ids = inputs.pop("input_ids")
    embedded = inputs | {"inputs_embeds": embeddings.weight[ids]}
    run(model, embedded)
    with pytest.raises(ValueError, match="does not know which tokens are excluded"):
        forward(model, embedded)
