"""Training: gradients, checkpointing, autocast, and compiled models."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import PreTrainedModel

from jat_graph import JatConfig
from jat_graph.hf import attach, disabled
from tests.hf.causal import decoder, decoder_inputs
from tests.hf.encoders import SETTINGS, clustered_model
from tests.hf.models import (
    ARCHITECTURES,
    DECODERS,
    LENGTH,
    main_output,
    run,
    strengthened,
    tiny_config,
    tiny_inputs,
    tiny_jump_model,
    tiny_model,
)


def weighted(output: Tensor) -> Tensor:
    """Return a loss that is not constant under layer norm."""
    return (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum()


def gradients(model: PreTrainedModel, inputs: dict[str, Any]) -> dict[str, Tensor]:
    model.zero_grad()
    torch.manual_seed(3)  # dropout
    weighted(main_output(model(**inputs))).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


WAYS = [("pairs", name) for name in ("bert", "modernbert", "gpt2", "llama")]
WAYS += [("clusters", name) for name in ("bert", "gpt2", "llama")]
WAYS += [("clusters by name", name) for name in ("electra", "modernbert", "gpt2", "llama")]


def model_with(kind: str, name: str) -> PreTrainedModel:
    """Return a tiny model with heads of a kind."""
    if kind == "pairs":
        return tiny_jump_model(name)
    if name in DECODERS:
        return decoder(name, kind == "clusters by name")
    if kind == "clusters":
        return attach(tiny_model(name), JatConfig.clustered(**SETTINGS))
    return clustered_model(name)


@pytest.mark.slow
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(("kind", "name"), WAYS)
def test_gradient_checkpointing_changes_no_gradient(kind, name, reentrant):
    model, inputs = model_with(kind, name).train(), tiny_inputs(name, (LENGTH, 9, 7))
    if name in DECODERS:  # a cache, which checkpointing switches off, changes SDPA's last bits
        inputs = decoder_inputs(name) | {"use_cache": False}
    wanted = gradients(model, inputs)
    stock = gradients(tiny_model(name).to(model.dtype).train(), inputs)
    assert any(not torch.allclose(stock[key], grad, rtol=1e-2) for key, grad in wanted.items())
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    got = gradients(model, inputs)
    assert got.keys() >= wanted.keys()
    for parameter, grad in wanted.items():
        assert torch.equal(got[parameter], grad), parameter


TRAINED = {
    "pairs": tiny_config(backend="dense", threshold=3.0),
    "stones": JatConfig.stones(excluded_token_ids=(17, 29)),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("kind", TRAINED)
def test_a_compiled_model_trains_and_can_be_disabled(kind):
    torch._dynamo.reset()
    model = strengthened(attach(tiny_model("bert", num_hidden_layers=1), TRAINED[kind]))
    inputs = tiny_inputs("bert", (LENGTH, 7))
    wanted, jumping = gradients(model, inputs), run(model, inputs)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    model.zero_grad()
    weighted(main_output(compiled(**inputs))).backward()
    for name, grad in wanted.items():
        assert_close(model.get_parameter(name).grad, grad, rtol=1e-4, atol=1e-5)
    with disabled(model):
        base = run(compiled, inputs)
        assert_close(base, run(model, inputs), rtol=0, atol=1e-5)
    assert not torch.allclose(base, jumping, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [{"key_selection": "significance"}, {"vote_rate": 0.1}], ids=str)
def test_a_causal_mask_is_refused_compiled_as_it_is_eagerly(rule):
    torch._dynamo.reset()
    model = attach(tiny_model("bert", num_hidden_layers=1), tiny_config(backend="dense", **rule))
    inputs = tiny_inputs("bert")
    compiled = torch.compile(model, backend="eager")
    padding = torch.ones(3, 1, 1, LENGTH, dtype=torch.bool).expand(-1, -1, LENGTH, -1)
    assert_close(
        run(compiled, inputs | {"attention_mask": padding}), run(model, inputs), rtol=0, atol=1e-5
    )
    causal = torch.ones(3, 1, LENGTH, LENGTH, dtype=torch.bool).tril()
    additive = torch.zeros(causal.shape).masked_fill(~causal, torch.finfo(torch.float32).min)
    for mask in (causal, additive):
        with pytest.raises(ValueError, match="use later tokens, which a causal model must not see"):
            run(model, inputs | {"attention_mask": mask})
        with pytest.raises(ValueError, match=r"could use later tokens: torch\.compile hides wh"):
            run(compiled, inputs | {"attention_mask": mask})


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_where_nothing_joins_autocast_is_the_base_to_the_bit(name):
    model, inputs = tiny_model(name), tiny_inputs(name, (LENGTH, 7))
    with torch.autocast("cpu", torch.bfloat16):
        base = run(model, inputs)
        attach(model, tiny_config(threshold=math.inf))
        assert torch.equal(run(model, inputs), base)


def autocast_error(model: PreTrainedModel, inputs: dict[str, Tensor]) -> float:
    exact = run(model, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        return float((run(model, inputs).float() - exact).abs().max())


AUTOCAST = {  # votes near ρ flip in bfloat16, so soft ones are compared
    "pairs": tiny_config(soft_temperature=1.0, backend="dense"),
    "stones": JatConfig.stones(excluded_token_ids=(17, 29), strength=(0.5, 0.4, 0.3)),
    "clusters": JatConfig.clustered(keys=4, size=2, segment=4, dense_below=0),
}


@pytest.mark.slow
@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bert", "clusters"),
        *((x, y) for x in ("bert", "gpt2", "llama") for y in ("pairs", "stones")),
    ],
)
def test_autocast_errs_no_more_than_the_base_does(name, use_cache, kind):
    model, inputs = attach(tiny_model(name), AUTOCAST[kind]), tiny_inputs(name, (LENGTH, 8))
    if name != "bert":
        inputs |= {"use_cache": use_cache}  # with a cache Llama's values are float32, too
    jumping, moved = autocast_error(model, inputs), run(model, inputs)
    with disabled(model):
        assert not torch.allclose(run(model, inputs), moved, atol=1e-3)
        # Clusters choose otherwise where scores are near.
        often, more = (3, 1e-2) if kind == "clusters" else (2, 1e-3)
        assert jumping <= often * autocast_error(model, inputs) + more


@pytest.mark.parametrize("config", [tiny_config(), JatConfig.stones()], ids=["pairs", "stones"])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_autocast_trains(name, config):
    model, inputs = attach(tiny_model(name), config), tiny_inputs(name, (LENGTH, 7))
    with torch.autocast("cpu", torch.bfloat16):
        loss = weighted(main_output(model(**inputs)).float())
    loss.backward()
    grads = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    assert all(bool(grad.isfinite().all()) for grad in grads.values())
    learned = [grad for key, grad in grads.items() if key.endswith("strength.theta")]
    assert len(learned) == (3 if config.graph.kind == "stones" else 0)
    assert all(bool(grad.any()) for grad in learned or grads.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_takes_the_strengths_along(dtype):
    for model in (
        attach(tiny_model("bert"), JatConfig.stones()).to(dtype),
        attach(tiny_model("bert").to(dtype), JatConfig.stones()),
    ):
        learned = [p for key, p in model.named_parameters() if key.endswith("strength.theta")]
        for theta in learned:
            torch.nn.init.constant_(theta, 0.5)
        output = run(model, tiny_inputs("bert", (LENGTH, 8)))
        assert {theta.dtype for theta in learned} == {output.dtype} == {dtype}
        assert bool(output.isfinite().all())
