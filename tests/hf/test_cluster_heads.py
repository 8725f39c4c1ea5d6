"""Cluster heads attached, alone or beside jump heads: each kind reads what it reads alone."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn
from torch.testing import assert_close

from jat_graph import ClusterGraph, JatConfig, PairGraph, clustered_attention
from jat_graph.hf import (
    attach,
    attached_config,
    capture_scores,
    detach,
    disabled,
    from_pretrained,
    save_pretrained,
    summary,
    using_graphs,
)
from tests.hf.encoders import FAMILIES, LENGTHS, SETTINGS, clustered_model
from tests.hf.models import (
    PADDINGS,
    heads_read,
    run,
    tiny_config,
    tiny_inputs,
    tiny_jump_model,
    tiny_model,
)
from tests.hf.test_adapter import tiny_clip, traces
from tests.hf.test_interface_training import gradients

ALL = JatConfig.clustered(**SETTINGS)
SOME = ALL.replace(heads=(1, 3))
JUMP = tiny_config(heads=1)
PATTERN = tiny_config(heads=1, pattern="window:4")
NAMES = ["bert", "roberta", "distilbert", "albert", "electra", "modernbert", "vit", "eurobert"]
ORDERS = [
    pytest.param((JUMP, SOME), id="jump heads first"),
    pytest.param((SOME, JUMP), id="cluster heads first"),
]


def configs_of(model: nn.Module) -> tuple[Any, Any]:
    """Return the settings of a model's heads, of each kind."""
    return attached_config(model), attached_config(model, ClusterGraph)


def both(*configs: Any) -> hf.PreTrainedModel:
    """Return a tiny BERT with heads of both kinds."""
    model = tiny_model("bert")
    for config in configs or (JUMP, SOME):
        attach(model, config)
    return model


@pytest.mark.parametrize(("lengths", "side"), PADDINGS)
def test_chosen_heads_read_as_the_function_does_and_others_as_before(lengths, side):
    inputs = tiny_inputs("bert", lengths, side=side)
    parts, got = heads_read(attach(tiny_model("bert"), SOME), inputs)
    mask = inputs.get("attention_mask")
    mask = None if mask is None else mask.bool()
    want = clustered_attention(*parts, attention_mask=mask, **SETTINGS)
    _, base = heads_read(tiny_model("bert"), inputs)
    assert torch.equal(got[:, [1, 3]], want[:, [1, 3]])
    assert torch.equal(got[:, [0, 2]], base[:, [0, 2]])
    assert not torch.allclose(want[:, [1, 3]], base[:, [1, 3]], atol=1e-3)


def test_tables_give_each_layer_and_head_its_own(tmp_path):
    keys = ((4, 0, 2, 2), (1, 1, 1, 1), (2, 4, 2, 4))
    dense = ((0, 0, 0, math.inf), (0, 0, 0, 0), (math.inf,) * 4)
    config = ALL.replace(keys=keys, dense_below=dense)
    inputs = tiny_inputs("bert", LENGTHS)
    model = attach(tiny_model("bert"), config)
    parts, got = heads_read(model, inputs)
    mask = inputs["attention_mask"].bool()
    for head, number in enumerate((4, 0, 2)):
        want = clustered_attention(*parts, attention_mask=mask, **SETTINGS | {"keys": number})
        assert torch.equal(got[:, head], want[:, head])
    assert torch.equal(got[:, 3], heads_read(tiny_model("bert"), inputs)[1][:, 3])
    lines = summary(model).splitlines()
    assert "layer 0: cluster heads 0-3 of 4: 0 to 4 keys, 16 groups, " in lines[1]
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(hf.AutoModel, tmp_path)
    assert attached_config(loaded, ClusterGraph) == config
    assert torch.equal(run(loaded, inputs), run(model, inputs))


@pytest.mark.slow
@pytest.mark.parametrize("configs", [pytest.param((ALL,), id="cluster heads"), *ORDERS])
@pytest.mark.parametrize("name", NAMES)
def test_heads_are_saved_copied_switched_off_and_taken_off(name, configs, tmp_path):
    model, inputs = FAMILIES[name].build(), FAMILIES[name].inputs(LENGTHS, "right")
    model.save_pretrained(tmp_path / "base")  # which writes down its class and its precision
    base, settings, weights = run(model, inputs), model.config.to_dict(), list(model.state_dict())
    for config in configs:
        attach(model, config)
    got, twin, kinds = run(model, inputs), copy.deepcopy(model), configs_of(model)
    if configs == (ALL,):
        assert_close(got, run(clustered_model(name), inputs), rtol=0, atol=1e-5)
    assert not torch.allclose(got, base, atol=1e-3)
    with disabled(model):
        assert torch.equal(run(model, inputs), base)
    model.save_pretrained(tmp_path)
    kwargs = {"add_pooling_layer": False} if name == "vit" else {}
    loaded = from_pretrained(type(model), tmp_path, **kwargs)
    assert configs_of(loaded) == kinds
    assert {*kinds} - {None} == {*configs}
    assert traces(detach(model)) == []
    assert (model.config.to_dict(), list(model.state_dict())) == (settings, weights)
    assert torch.equal(run(model, inputs), base)
    for other in (loaded, twin):
        assert torch.equal(run(other, inputs), got)


@pytest.mark.parametrize(
    "settings", [{}, {"size": 32, "segment": 32, "dense_below": 0}, {"dense_below": math.inf}]
)
@pytest.mark.parametrize("name", NAMES)
def test_short_inputs_are_the_base_to_the_bit(name, settings):
    model, inputs = FAMILIES[name].build(), FAMILIES[name].inputs(LENGTHS, "right")
    base = run(model, inputs)
    assert torch.equal(run(attach(model, JatConfig.clustered(**settings)), inputs), base)


def test_layers_are_chosen_and_windows_of_a_models_own_are_left():
    model = attach(tiny_model("bert"), SOME.replace(layers=(0, 2)))
    assert "layers 0, 2: cluster heads 1, 3 of 4" in summary(model)
    model = attach(tiny_model("modernbert"), ALL)  # two of its layers are local
    assert "layer 0: cluster heads 0-3 of 4" in summary(model)
    assert summary(model).count("cluster heads") == 1
    attach(tiny_model("bart"), ALL.replace(layers=(0, 1)))  # its encoder


@pytest.mark.parametrize("configs", ORDERS)
def test_each_kind_reads_what_it_reads_alone_and_learns(configs):
    inputs = tiny_inputs("bert", LENGTHS)
    model = both(*configs)
    words = ["jump heads 0 of 4", "cluster heads 1, 3 of 4"]
    assert all(word in summary(model).replace("\n    ", " ") for word in words)
    _, got = heads_read(model, inputs)
    _, jumping = heads_read(attach(tiny_model("bert"), JUMP), inputs)
    _, clustered = heads_read(attach(tiny_model("bert"), SOME), inputs)
    assert_close(got[:, :1], jumping[:, :1], rtol=0, atol=1e-6)
    assert_close(got[:, 1:], clustered[:, 1:], rtol=0, atol=1e-6)
    _, base = heads_read(tiny_model("bert"), inputs)
    for heads in ([0], [1, 3]):
        assert not torch.allclose(got[:, heads], base[:, heads], atol=1e-3)
    grads = gradients(model, inputs)
    assert all(bool(grad.isfinite().all()) for grad in grads.values())
    for grad in (grad for name, grad in grads.items() if "query.weight" in name):
        assert all(bool(rows.any()) for rows in grad.split(8))  # of each head


def test_one_kind_is_taken_off_and_the_other_keeps_what_it_learned():
    learning, inputs = JatConfig.stones(heads=1), tiny_inputs("bert")
    model = both(learning, SOME)
    with torch.no_grad():
        model.encoder.layer[0].attention.self.strength.theta.add_(1.0)
    before = run(model, inputs)
    detach(model, ClusterGraph)
    alone = run(model, inputs)
    assert configs_of(model) == (learning, None)
    assert not torch.allclose(alone, before, atol=1e-3)
    with pytest.raises(ValueError, match="must have cluster heads, got a BertModel"):
        detach(model, ClusterGraph)
    assert torch.equal(run(attach(model, SOME), inputs), before)
    detach(model, PairGraph)
    assert torch.equal(run(model, inputs), run(attach(tiny_model("bert"), SOME), inputs))
    assert not any("theta" in key for key in model.state_dict())
    with pytest.raises(ValueError, match="must have jump heads, got a BertModel"):
        detach(model, PairGraph)


def test_a_kind_is_attached_once_and_a_head_given_once():
    model, inputs = both(), tiny_inputs("bert")
    before = run(model, inputs)
    for config, word in ((JUMP, "jump"), (SOME, "cluster")):
        message = f"BertModel already has {word} heads; detach them first"
        with pytest.raises(ValueError, match=message):
            attach(model, config)
    assert torch.equal(run(model, inputs), before)
    jumping = tiny_jump_model("bert")
    before = run(jumping, inputs)
    with pytest.raises(ValueError, match="head 0 of layer 0 is a jump head and cannot be a cl"):
        attach(jumping, ALL)
    assert torch.equal(run(jumping, inputs), before)
    detach(jumping)
    attach(jumping, ALL.replace(layers=(0, 2)))
    with pytest.raises(ValueError, match="head 0 of layer 0 is a cluster head and cannot be a"):
        attach(jumping, tiny_config())
    attach(jumping, tiny_config(layers=(1,)))  # other layers


def test_only_the_whole_model_gets_another_kind():
    torch.manual_seed(0)
    model = hf.BartForConditionalGeneration(tiny_model("bart").config).eval()
    attach(model, tiny_config(layers=(1,)))
    with pytest.raises(ValueError, match="must be the one with the other heads, got a BartE"):
        attach(model.model.encoder, SOME.replace(layers=(0,)))
    attach(model, SOME.replace(layers=(0,)))
    towers, _ = tiny_clip()
    attach(towers.text_model, JUMP)
    with pytest.raises(ValueError, match="must be the one with the other heads, got a CLIP"):
        attach(towers, SOME.replace(layers=(2, 3)))


@pytest.mark.parametrize("name", ["bert", "albert", "modernbert"])
def test_transformers_alone_loads_a_saved_model(name, tmp_path):
    model, inputs = attach(tiny_model(name), ALL), tiny_inputs(name, LENGTHS)
    save_pretrained(model, tmp_path)
    for options in ({}, {"attn_implementation": "jat"}):
        loaded = hf.AutoModel.from_pretrained(tmp_path, **options)
        assert torch.equal(run(loaded, inputs), run(model, inputs))
        assert summary(loaded) == summary(model)


def test_no_attentions_are_given_and_scores_of_jump_heads_are_recorded():
    model, inputs = both(), tiny_inputs("bert")
    with torch.no_grad(), capture_scores(model) as layers:
        outputs = model(**inputs, output_attentions=True)
    assert [(layer.layer, layer.heads) for layer in layers] == [(0, (0,)), (1, (0,)), (2, (0,))]
    assert not outputs.attentions  # cluster heads have none, and fewer rows would be shifted ones
    with disabled(model), torch.no_grad():
        assert len(model(**inputs, output_attentions=True).attentions) == 3
    clustered = attach(tiny_model("bert"), SOME)
    assert not clustered(**inputs, output_attentions=True).attentions
    with pytest.raises(ValueError, match="must have jump heads"), capture_scores(clustered):
        pass


REFUSALS: list[tuple[str, Callable[[], Any]]] = [
    (
        "layers must leave out 1, whose ModernBertAttention reads within a window of its own",
        lambda: attach(tiny_model("modernbert"), ALL.replace(layers=(0, 1))),
    ),
    (
        "keys table must have 3 rows, one for each layer, got 1",
        lambda: attach(tiny_model("bert"), ALL.replace(keys=((1, 2, 3, 4),))),
    ),
    (
        "excluded_token_ids must not be set with graph='clusters'",
        lambda: attach(tiny_model("bert"), ALL, [1, 2]),
    ),
    (
        "pattern must be None beside cluster heads, which read all keys",
        lambda: both(SOME, PATTERN),
    ),
    ("pattern must be None beside cluster heads", lambda: both(PATTERN, SOME)),
    (
        "layers must be None, because one AlbertAttention serves several layers",
        lambda: attach(tiny_model("albert"), ALL.replace(layers=(0,))),
    ),
    (
        "model must have jump heads on pairs for graphs from outside, got none",
        lambda: using_graphs(attach(tiny_model("bert"), ALL), []).__enter__(),
    ),
]


@pytest.mark.parametrize(("message", "call"), REFUSALS)
def test_what_does_not_go_is_said_in_one_line(message, call):
    with pytest.raises(ValueError, match=message) as seen:
        call()
    assert "\n" not in str(seen.value)


def test_folders_that_name_the_kind_as_their_attention_load(tmp_path):
    """Folders of version 0.1 name ``"jat"``."""
    model, inputs = attach(tiny_model("bert"), JUMP), tiny_inputs("bert")
    model.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    settings["attn_implementation"] = "jat"
    (tmp_path / "config.json").write_text(json.dumps(settings))
    for loaded in (from_pretrained(hf.AutoModel, tmp_path), hf.AutoModel.from_pretrained(tmp_path)):
        assert torch.equal(run(loaded, inputs), run(model, inputs))
        assert detach(loaded).config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("triplet", {"heads": 3, "pairs": "partner", "seed": 0, "layers": None}),
        ("attention_filter", {"rule": "gfsa", "order": 3, "restart": None, "layers": [0]}),
    ],
)
def test_kinds_of_version_0_2_are_refused_in_a_line(name, settings, tmp_path):
    model = attach(tiny_model("bert"), JUMP)
    setattr(model.config, name, settings)
    model.save_pretrained(tmp_path)
    by_name = hf.AutoModel.from_pretrained(tmp_path)
    for call in (
        lambda: from_pretrained(hf.AutoModel, tmp_path),
        lambda: run(by_name, tiny_inputs("bert")),
        lambda: attach(by_name, SOME),
    ):
        with pytest.raises(ValueError, match=rf"\A{name} heads were saved, .* 0\.2\.0 [^\n]*\Z"):
            call()


class Fixed(hf.BertModel):
    """A model whose attention transformers cannot change."""

    def set_attn_implementation(self, *args: Any, **kwargs: Any) -> None:
        """Leave it as it is."""


def test_a_model_whose_attention_is_fixed_is_refused_and_left_as_it_was():
    model = Fixed(tiny_model("bert").config)
    before = (model.config.to_dict(), list(model.state_dict()))
    with pytest.raises(ValueError, match="cannot change the attention of BertSelfAttention"):
        attach(model, JUMP)
    assert (model.config.to_dict(), list(model.state_dict())) == before and traces(model) == []
