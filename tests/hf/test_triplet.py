"""Triplet heads in pretrained models: attached, run, saved, trained, and taken off again."""

import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch import Tensor
from torch.testing import assert_close

from jat_graph.hf import TripletConfig, attach, detach, disabled, summary
from tests.hf.models import LENGTH, assert_padding_changes_nothing, run, tiny_inputs, tiny_model
from tests.hf.test_adapter import traces
from tests.oracles import reference_triplet_attention

ENCODERS = ("bert", "roberta", "distilbert", "electra", "albert", "vit")
HEAD_DIM = 8  # of the tiny models


PAIRS = ("partner", "sum", "max")


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("name", ENCODERS)
def test_attach_places_them_and_detach_leaves_no_trace(name: str, pairs: str) -> None:
    model, inputs = tiny_model(name), tiny_inputs(name, (LENGTH, 8, 5))
    base, settings = run(model, inputs), model.config.to_dict()
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    config = TripletConfig(pairs=pairs)
    assert attach(model, config) is model
    assert f"pairs {pairs}" in summary(model)
    assert not torch.allclose(run(model, inputs), base, atol=1e-3)
    new = set(model.state_dict()) - set(weights)
    assert bool(new) == (pairs == "partner") and all(".key2." in key for key in new)
    with disabled(model):
        assert torch.equal(run(model, inputs), base)
    assert detach(model) is model
    assert model.config.to_dict() == settings
    assert traces(model) == []
    assert torch.equal(run(model, inputs), base)
    after = model.state_dict()
    assert list(after) == list(weights)
    assert all(torch.equal(after[key], weights[key]) for key in weights)


@pytest.mark.parametrize("pairs", PAIRS)
def test_the_last_heads_are_the_references_and_the_others_stock(pairs: str) -> None:
    config = TripletConfig(pairs=pairs, layers=(1,), seed=3)
    model = attach(tiny_model("bert"), config).double()
    module = model.encoder.layer[1].attention.self
    seen: list[tuple[Tensor, Tensor]] = []
    module.register_forward_hook(
        lambda _, args, out: seen.append((args[0], out[0])), with_kwargs=False
    )
    run(model, tiny_inputs("bert", (LENGTH, 7)))
    (hidden, out), number = seen[0], config.seed + 1
    assert not hasattr(model.encoder.layer[0].attention.self, "key2")
    with torch.no_grad():
        query, key, value = (lin(hidden) for lin in (module.query, module.key, module.value))
        second = module.key2(hidden) if pairs == "partner" else None
    # The random order of n tokens is that of the first n of these numbers.
    drawn = torch.rand(LENGTH, dtype=torch.float64, generator=torch.Generator().manual_seed(number))
    for row, length in enumerate((LENGTH, 7)):
        q, k, v = (t[row, :length] for t in (query, key, value))
        stock = F.scaled_dot_product_attention(*(t[None, :, :HEAD_DIM] for t in (q, k, v)))[0]
        assert_close(out[row, :length, :HEAD_DIM], stock, rtol=1e-10, atol=1e-10)
        want = reference_triplet_attention(
            *(t[:, HEAD_DIM:] for t in (q, k, v)),
            None if second is None else second[row, :length],
            aggregation=pairs,
            shuffled=drawn[:length].argsort().tolist(),
        )
        assert_close(out[row, :length, HEAD_DIM:], want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_changes_nothing(side: str, pairs: str) -> None:
    model = attach(tiny_model("bert"), TripletConfig(pairs=pairs)).double()
    lengths, width = (LENGTH, 7, 1), LENGTH + 3
    inputs = tiny_inputs("bert", lengths, side=side, padded_to=width)
    assert_padding_changes_nothing(model, inputs, lengths, side, 1e-10)


def test_nothing_is_drawn_from_the_global_state() -> None:
    model, inputs = tiny_model("bert"), tiny_inputs("bert")
    torchs, pythons = torch.get_rng_state(), random.getstate()
    numpys = pickle.dumps(np.random.get_state())
    first = run(attach(model, TripletConfig()), inputs)
    assert torch.equal(torch.get_rng_state(), torchs)
    assert pickle.dumps(np.random.get_state()) == numpys and random.getstate() == pythons
    twin = attach(tiny_model("bert"), TripletConfig())
    assert torch.equal(run(twin, inputs), first)
    other = attach(tiny_model("bert"), TripletConfig(seed=1))
    assert not torch.allclose(run(other, inputs), first)


@pytest.mark.parametrize(
    "settings", [{"heads": 4}, {"heads": 0}, {"pairs": "all"}, {"layers": ()}, {"seed": -1}]
)
def test_bad_settings_are_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(settings))} must be"):
        TripletConfig(**settings)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gpt2", {}, "GPT2Attention of layer 0 is causal: triplet heads"),
        ("bert", {"heads": 6}, "heads"),
        ("bert", {"layers": (3,)}, "layers"),
        ("albert", {"layers": (0,)}, "layers"),
    ],
)
def test_models_that_cannot_have_them_are_left_as_they_were(
    name: str, settings: dict[str, Any], message: str
) -> None:
    model, inputs = tiny_model(name), tiny_inputs(name)
    base, before = run(model, inputs), model.config.to_dict()
    with pytest.raises(ValueError, match=message):
        attach(model, TripletConfig(**settings))
    assert traces(model) == [] and model.config.to_dict() == before
    assert torch.equal(run(model, inputs), base)


def test_a_mask_of_pairs_is_refused() -> None:
    model, inputs = attach(tiny_model("bert"), TripletConfig()), tiny_inputs("bert")
    pairs = torch.ones(3, 1, LENGTH, LENGTH, dtype=torch.bool).tril()
    with pytest.raises(ValueError, match="must have a mask of padding only for triplet heads"):
        run(model, inputs | {"attention_mask": pairs})


class Fixed(hf.BertModel):
    """A model whose attention transformers cannot change."""

    def set_attn_implementation(self, *args: Any, **kwargs: Any) -> None:
        """Leave it as it is."""


def test_a_model_whose_attention_is_fixed_is_refused_and_left_as_it_was() -> None:
    model = Fixed(tiny_model("bert").config)
    before = (model.config.to_dict(), list(model.state_dict()))
    with pytest.raises(ValueError, match="cannot change the attention of BertSelfAttention"):
        attach(model, TripletConfig())
    assert (model.config.to_dict(), list(model.state_dict())) == before and traces(model) == []
