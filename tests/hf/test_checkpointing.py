"""Gradient checkpointing with :func:`keep_graphs`: no operator of ours runs twice."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from jat_graph import JatConfig, jump_attention
from jat_graph.hf import keep_graphs
from tests.hf.models import DECODERS, LENGTH, assert_joins, tiny_inputs, tiny_jump_model
from tests.hf.test_interface_training import gradients
from tests.inputs import random_heads
from tests.support import count_operations

SETTINGS: dict[str, dict[str, Any]] = {
    "dense": {"backend": "dense"},
    "threshold": {"backend": "threshold", "hop_weights": (0.2, 0.3, 0.5)},
    "soft": {"backend": "dense", "soft_temperature": 0.5},
    "sparse": {"backend": "sparse", "key_selection": "sampled"},
    "mixed": {"key_selection": "significance", "hop_weights": (0.5, 0.5)},
}
CASES = [(name, kind) for name in ("bert", "roberta") for kind in SETTINGS]
CASES += [("llama", kind) for kind in ("dense", "threshold", "soft")]  # its masks want all keys
CASES += [("modernbert", kind) for kind in ("dense", "soft")]  # so do those of its local layers
HALVES = JatConfig(hop_weights=(0.5, 0.5))


def step(model: PreTrainedModel, inputs: dict[str, Any]) -> tuple[Counter[str], dict[str, Tensor]]:
    """Run forward and backward; return how often our operators ran, and the gradients."""
    with count_operations() as seen:
        found = gradients(model, inputs)
    return Counter({name: n for name, n in seen.items() if name.startswith("jat_graph.")}), found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_graphs_are_made_once_and_gradients_stay(name, kind):
    model, inputs = tiny_jump_model(name, **SETTINGS[kind]), tiny_inputs(name, (LENGTH, 7))
    if name in DECODERS:
        inputs |= {"use_cache": False}
    assert_joins(model, inputs)
    model.train()
    once, wanted = step(model, inputs)
    model.enable_input_require_grads()
    model.activation_checkpointing_enable({"use_reentrant": False})
    twice, _ = step(model, inputs)
    model.activation_checkpointing_enable({"use_reentrant": False, "context_fn": keep_graphs})
    kept, got = step(model, inputs)
    assert kept == once
    assert all(twice[name] > count for name, count in once.items())
    assert (not once) == (kind == "soft")  # soft votes carry gradients
    assert all(torch.equal(got[name], grad) for name, grad in wanted.items())


def run(heads: list[Tensor]) -> Tensor:
    """Run a checkpointed jump attention."""

    def attend(*tensors: Tensor) -> Tensor:
        return jump_attention(*tensors, config=HALVES)

    output: Tensor = checkpoint(attend, *heads, use_reentrant=False, context_fn=keep_graphs)
    return output


def test_a_second_backward_pass_says_why_it_cannot():
    heads = [tensor.requires_grad_() for tensor in random_heads(1, 2, 8, 4)[:3]]
    output = run(heads)
    torch.autograd.grad(output.sum(), heads, retain_graph=True)
    with pytest.raises(RuntimeError, match=r"for one backward pass; .*retain_graph=True"):
        torch.autograd.grad(output.sum(), heads)


def test_two_forward_passes_before_two_backward_passes():
    first, second = (random_heads(1, 2, 8, 4, seed=seed)[:3] for seed in (0, 1))
    leaves = [[tensor.requires_grad_() for tensor in heads] for heads in (first, second)]
    outputs = [run(heads) for heads in leaves]
    for output, heads in reversed(list(zip(outputs, leaves, strict=True))):
        got = torch.autograd.grad(output.square().sum(), heads)
        whole = jump_attention(*heads, config=HALVES)
        wanted = torch.autograd.grad(whole.square().sum(), heads)
        assert all(map(torch.equal, got, wanted))


def test_compiled_code_keeps_graphs():
    heads = [tensor.requires_grad_() for tensor in random_heads(1, 2, 8, 4)[:3]]
    wanted = torch.autograd.grad(run(heads).sum(), heads)
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    for ours, theirs in zip(torch.autograd.grad(compiled(heads).sum(), heads), wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
