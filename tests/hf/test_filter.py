"""Filter heads in pretrained models: the papers' formulas, the base, masks, saving, training."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from jat_graph.hf import FilterConfig, attach, detach, disabled, from_pretrained, summary
from jat_graph.testing import assert_within_budget
from jat_graph.training import parameter_groups
from tests.hf.models import LENGTH, assert_padding_changes_nothing, run, tiny_inputs, tiny_model
from tests.oracles import reference_gfsa, reference_ppr

BOTH = [FilterConfig(), FilterConfig("ppr")]
ENCODERS = ("bert", "roberta", "distilbert", "electra", "albert", "modernbert")
HEAD_DIM = 8  # of the tiny models


def move(model: nn.Module) -> nn.Module:
    """Give weights that learned something."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".filter." in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) / 2)
    return model


def oracle(rows: Tensor, value: Tensor, config: FilterConfig, theta: Tensor | None) -> Tensor:
    """Return what the papers' formulas say of one head."""
    if theta is None:
        assert config.restart is not None
        return reference_ppr(rows, value, config.restart, config.order)
    return reference_gfsa(rows, value, (theta[0], 1 + theta[1], theta[2]), config.order)


def by_formulas(module: Any, hidden: Tensor, config: FilterConfig) -> Tensor:
    """Return what BERT's heads read of one sequence ``[n, C]``, every matrix written out."""
    theta = module.filter() if config.rule == "gfsa" else None
    heads = []
    parts = [lin(hidden).chunk(4, -1) for lin in (module.query, module.key, module.value)]
    for head, (query, key, value) in enumerate(zip(*parts, strict=True)):
        rows = (query @ key.T / HEAD_DIM**0.5).softmax(-1)
        heads.append(oracle(rows, value, config, None if theta is None else theta[:, head]))
    return torch.cat(heads, -1)


@settings(deadline=None, max_examples=40)
@given(
    length=st.integers(1, 9),
    order=st.integers(1, 10),
    rule=st.sampled_from(["gfsa", "ppr"]),
    restart=st.floats(0.0, 1.0),
    seed=st.integers(0, 99),
)
def test_fast_heads_are_the_formulas(
    length: int, order: int, rule: str, restart: float, seed: int
) -> None:
    config = FilterConfig(rule, order, restart if rule == "ppr" else None)
    model = move(attach(tiny_model("bert", num_hidden_layers=1), config)).double()
    module: Any = model.encoder.layer[0].attention.self
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(length, 32, dtype=torch.float64, generator=generator).requires_grad_()
    fast, slow = module(hidden[None])[0][0], by_formulas(module, hidden, config)
    assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    used = [hidden, module.value.weight, *([module.filter.theta] if rule == "gfsa" else [])]
    weight = torch.randn(fast.shape, dtype=torch.float64, generator=generator)
    grads = [torch.autograd.grad((weight * out).sum(), used) for out in (fast, slow)]
    for one, other in zip(*grads, strict=True):
        assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("config", BOTH, ids=["gfsa", "ppr"])
@pytest.mark.parametrize("lengths", [(LENGTH,), (LENGTH, 7, 1)])
def test_heads_of_a_model_are_the_formulas(config: FilterConfig, lengths: tuple[int, ...]) -> None:
    model = move(attach(tiny_model("bert"), config)).double()
    module: Any = model.encoder.layer[1].attention.self
    seen: list[tuple[Tensor, Tensor]] = []
    module.register_forward_hook(lambda _, args, out: seen.append((args[0], out[0])))
    run(model, tiny_inputs("bert", lengths))
    hidden, out = seen[0]
    with torch.no_grad():
        for row, length in enumerate(lengths):
            want = by_formulas(module, hidden[row, :length], config)
            assert_close(out[row, :length], want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("config", BOTH, ids=["gfsa", "ppr"])
def test_low_precision_is_at_most_twice_as_wrong_as_the_formula(
    config: FilterConfig, dtype: torch.dtype
) -> None:
    module: Any = move(attach(tiny_model("bert"), config)).to(dtype).encoder.layer[1].attention.self
    hidden = torch.randn(33, 32, generator=torch.Generator().manual_seed(0)).to(dtype)
    with torch.no_grad():
        got, low = module(hidden[None])[0][0], by_formulas(module, hidden, config)
        assert_within_budget(got, low, by_formulas(module.double(), hidden.double(), config))


@pytest.mark.parametrize("name", [*ENCODERS, "gpt2", "llama"])
def test_gfsa_begins_as_the_base_to_the_bit_and_learns(name: str) -> None:
    model, inputs = tiny_model(name), tiny_inputs(name, (LENGTH, 8))
    base = run(model, inputs)
    attach(model, FilterConfig())
    assert torch.equal(run(model, inputs), base)
    with torch.enable_grad():  # as in training
        out = model(**inputs)[0]
        out.square().sum().backward()
    weights = [p for key, p in model.named_parameters() if ".filter." in key]
    assert weights and all(p.grad is not None and p.grad.abs().sum() > 0 for p in weights)
    moved = run(move(model), inputs)
    assert not torch.allclose(moved, base, atol=1e-4)
    with disabled(model):
        assert torch.equal(run(model, inputs), base)
    assert torch.equal(run(detach(model), inputs), base)
    assert not any(".filter." in key for key in model.state_dict())


def test_their_weights_learn_as_strengths_do() -> None:
    model = attach(tiny_model("bert"), FilterConfig())
    _, _, own = parameter_groups(model, lr=1e-4)
    assert [weight.shape for weight in own["params"]] == [(3, 4)] * 3
    assert own["lr"] > 1e-4 and own["weight_decay"] == 0


def test_one_step_of_diffusion_without_restart_is_the_base() -> None:
    model, inputs = tiny_model("bert"), tiny_inputs("bert", (LENGTH, 8))
    base = run(model, inputs)
    assert torch.equal(run(attach(model, FilterConfig("ppr", 1, 0.0)), inputs), base)
    detach(model)
    assert not torch.allclose(run(attach(model, FilterConfig("ppr")), inputs), base, atol=1e-4)


@pytest.mark.parametrize("config", BOTH, ids=["gfsa", "ppr"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_changes_nothing(config: FilterConfig, side: str) -> None:
    model = move(attach(tiny_model("bert"), config)).double()
    lengths, width = (LENGTH, 7, 1), LENGTH + 3
    inputs = tiny_inputs("bert", lengths, side=side, padded_to=width)
    assert_padding_changes_nothing(model, inputs, lengths, side, 1e-10)


@pytest.mark.parametrize("config", BOTH, ids=["gfsa", "ppr"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_no_power_looks_ahead(config: FilterConfig, name: str) -> None:
    model = move(attach(tiny_model(name), config)).double()
    ids = torch.arange(5, 17)[None]
    changed = ids.clone()
    changed[0, 8:] = 40
    one, other = (model(input_ids=x, use_cache=False)[0] for x in (ids, changed))
    assert_close(one[:, :8], other[:, :8], rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="use_cache=False"):
        model.generate(ids, max_new_tokens=2, do_sample=False)


@pytest.mark.parametrize("config", BOTH, ids=["gfsa", "ppr"])
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_model_comes_back_with_its_filters(
    config: FilterConfig, name: str, tmp_path: Path
) -> None:
    model, inputs = move(attach(tiny_model(name), config)), tiny_inputs(name, (LENGTH, 8))
    want = run(model, inputs)
    model.save_pretrained(tmp_path)
    for kind in (hf.AutoModel, type(model)):
        loaded = from_pretrained(kind, tmp_path)
        assert torch.equal(run(loaded, inputs), want)
        assert summary(loaded) == summary(model)


BAD = [{"rule": "nexus"}, {"order": 0}, {"restart": 0.1}, {"layers": (1, 1)}]
BAD += [{"rule": "ppr", "restart": restart} for restart in (1.5, float("nan"))]


@pytest.mark.parametrize("fields", BAD, ids=str)
def test_bad_fields_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=list(fields)[-1]):
        FilterConfig(**fields)
