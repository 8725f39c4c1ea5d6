"""Jump heads and cluster heads in one model: each reads as it does alone, and keeps its place."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.testing import assert_close

from jat_graph.clusters.settings import ClusterGraph
from jat_graph.hf import attach, attached_config, capture_scores, detach, disabled, from_pretrained
from jat_graph.jumps.config import JatConfig
from jat_graph.jumps.graph_config import PairGraph
from tests.hf.encoders import SETTINGS
from tests.hf.models import LENGTH, run, tiny_config, tiny_inputs, tiny_jump_model, tiny_model
from tests.hf.test_adapter import tiny_clip, traces

ENCODERS = ("bert", "roberta", "distilbert", "electra", "albert", "vit")
HEAD_DIM = 8  # of the tiny models
JUMP = tiny_config(heads=1)
CLUSTERS = JatConfig.clustered(**SETTINGS, heads=(1, 2, 3))
ORDERS = [
    pytest.param((JUMP, CLUSTERS), id="jump first"),
    pytest.param((CLUSTERS, JUMP), id="last"),
]


def configs_of(model: nn.Module) -> tuple[Any, Any]:
    """Return the settings of a model's heads, of each kind."""
    return attached_config(model), attached_config(model, ClusterGraph)


def both(name: str, *configs: Any) -> hf.PreTrainedModel:
    """Return a tiny model with heads of both kinds."""
    model = tiny_model(name)
    for config in configs or (JUMP, CLUSTERS):
        attach(model, config)
    return model


def first_layer(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Return what the heads of BERT's first layer read, ``[B, L, H, D]``."""
    seen: list[Tensor] = []
    module: Any = model.encoder.layer[0].attention.self
    hook = module.register_forward_hook(lambda *call: seen.append(call[-1][0]))
    run(model, inputs)
    hook.remove()
    return seen[0].unflatten(-1, (-1, HEAD_DIM))


@pytest.mark.parametrize("configs", ORDERS)
def test_each_kind_reads_what_it_reads_alone(configs: tuple[Any, Any]) -> None:
    inputs = tiny_inputs("bert", (LENGTH, 8, 5))
    got = first_layer(both("bert", *configs), inputs)
    jumping = first_layer(attach(tiny_model("bert"), JUMP), inputs)
    clustered = first_layer(attach(tiny_model("bert"), CLUSTERS), inputs)
    base = first_layer(tiny_model("bert"), inputs)
    assert_close(got[:, :, :1], jumping[:, :, :1], rtol=0, atol=1e-6)
    assert_close(got[:, :, 1:], clustered[:, :, 1:], rtol=0, atol=1e-6)
    assert not torch.allclose(got[:, :, :1], base[:, :, :1], atol=1e-3)
    assert not torch.allclose(got[:, :, 1:], base[:, :, 1:], atol=1e-3)


@pytest.mark.parametrize("name", ENCODERS)
def test_all_are_switched_off_and_taken_off_together(name: str) -> None:
    model, inputs = tiny_model(name), tiny_inputs(name, (LENGTH, 8, 5))
    base, settings, weights = run(model, inputs), model.config.to_dict(), list(model.state_dict())
    attach(attach(model, JUMP), CLUSTERS)
    assert configs_of(model) == (JUMP, CLUSTERS)
    assert not torch.allclose(run(model, inputs), base, atol=1e-3)
    with disabled(model):
        assert torch.equal(run(model, inputs), base)
    assert traces(detach(model)) == []
    assert (model.config.to_dict(), list(model.state_dict())) == (settings, weights)
    assert torch.equal(run(model, inputs), base)


def test_one_kind_is_taken_off_and_the_other_keeps_what_it_learned() -> None:
    learning, inputs = JatConfig.stones(heads=1), tiny_inputs("bert")
    model = both("bert", learning, CLUSTERS)
    with torch.no_grad():
        model.encoder.layer[0].attention.self.strength.theta.add_(1.0)
    before = run(model, inputs)
    detach(model, ClusterGraph)
    alone = run(model, inputs)
    assert configs_of(model) == (learning, None)
    assert not torch.allclose(alone, before, atol=1e-3)
    with pytest.raises(ValueError, match="must have cluster heads, got a BertModel"):
        detach(model, ClusterGraph)
    assert torch.equal(run(attach(model, CLUSTERS), inputs), before)
    detach(model, PairGraph)
    assert torch.equal(run(model, inputs), run(attach(tiny_model("bert"), CLUSTERS), inputs))
    assert not any("theta" in key for key in model.state_dict())
    with pytest.raises(ValueError, match="must have jump heads, got a BertModel"):
        detach(model, PairGraph)


def test_a_kind_is_attached_once_and_a_head_given_once() -> None:
    model, inputs = both("bert"), tiny_inputs("bert")
    before = run(model, inputs)
    for config, word in ((JUMP, "jump"), (CLUSTERS, "cluster")):
        message = f"BertModel already has {word} heads; detach them first"
        with pytest.raises(ValueError, match=message):
            attach(model, config)
    assert torch.equal(run(model, inputs), before)
    jumping = tiny_jump_model("bert")
    before = run(jumping, inputs)
    with pytest.raises(ValueError, match="head 2 of layer 0 is a jump head and cannot be a cl"):
        attach(jumping, CLUSTERS)
    assert torch.equal(run(jumping, inputs), before)
    detach(jumping)
    attach(jumping, CLUSTERS.replace(layers=(0, 2)))
    with pytest.raises(ValueError, match="head 2 of layer 0 is a cluster head and cannot be a"):
        attach(jumping, tiny_config())
    attach(jumping, tiny_config(layers=(1,)))  # other layers


def test_only_the_whole_model_gets_another_kind() -> None:
    torch.manual_seed(0)
    model = hf.BartForConditionalGeneration(tiny_model("bart").config).eval()
    attach(model, tiny_config(layers=(1,)))
    with pytest.raises(ValueError, match="must be the one with the other heads, got a BartE"):
        attach(model.model.encoder, CLUSTERS.replace(layers=(0,)))
    attach(model, CLUSTERS.replace(layers=(0,)))
    towers, _ = tiny_clip()
    attach(towers.text_model, JUMP)
    with pytest.raises(ValueError, match="must be the one with the other heads, got a CLIP"):
        attach(towers, CLUSTERS.replace(layers=(2, 3)))


def test_within_a_pattern_there_are_no_cluster_heads() -> None:
    pattern = tiny_config(heads=1, pattern="window:4")
    for configs in ((pattern, CLUSTERS), (CLUSTERS, pattern)):
        with pytest.raises(ValueError, match="pattern must be None beside cluster heads"):
            both("bert", *configs)


def test_scores_of_jump_heads_are_recorded_beside_cluster_heads() -> None:
    model, inputs = both("bert"), tiny_inputs("bert")
    with torch.no_grad(), capture_scores(model) as layers:
        outputs = model(**inputs, output_attentions=True)
    assert [(layer.layer, layer.heads) for layer in layers] == [(0, (0,)), (1, (0,)), (2, (0,))]
    assert not outputs.attentions  # cluster heads have none, and fewer rows would be shifted ones
    with disabled(model), torch.no_grad():
        assert len(model(**inputs, output_attentions=True).attentions) == 3
    with (
        pytest.raises(ValueError, match="must have jump heads"),
        capture_scores(attach(tiny_model("bert"), CLUSTERS)),
    ):
        pass


@pytest.mark.parametrize("name", ENCODERS)
def test_a_model_comes_back_with_both(name: str, tmp_path: Path) -> None:
    model, inputs = both(name), tiny_inputs(name, (LENGTH, 8))
    want, twin = run(model, inputs), copy.deepcopy(model)
    model.save_pretrained(tmp_path)
    kwargs = {"add_pooling_layer": False} if name == "vit" else {}
    loaded = from_pretrained(hf.AutoModel, tmp_path, **kwargs)
    assert configs_of(loaded) == (JUMP, CLUSTERS)
    detach(model)
    assert torch.equal(run(loaded, inputs), want)
    assert torch.equal(run(twin, inputs), want)


def test_folders_that_name_the_kind_as_their_attention_load(tmp_path: Path) -> None:
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
def test_kinds_of_version_0_2_are_refused_in_a_line(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    model = attach(tiny_model("bert"), JUMP)
    setattr(model.config, name, settings)
    model.save_pretrained(tmp_path)
    by_name = hf.AutoModel.from_pretrained(tmp_path)
    for call in (
        lambda: from_pretrained(hf.AutoModel, tmp_path),
        lambda: run(by_name, tiny_inputs("bert")),
        lambda: attach(by_name, CLUSTERS),
    ):
        with pytest.raises(ValueError, match=rf"\A{name} heads were saved, .* 0\.2\.0 [^\n]*\Z"):
            call()


def test_gradients_reach_both_kinds() -> None:
    model, inputs = both("bert").train(), tiny_inputs("bert")
    model(**inputs).last_hidden_state[..., 0].square().sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters() if ".self." in name}
    assert all(grad is not None and bool(grad.isfinite().all()) for grad in grads.values())
    for grad in (grad for name, grad in grads.items() if "query.weight" in name):
        assert all(bool(rows.any()) for rows in grad.split(HEAD_DIM))  # of each head


class Fixed(hf.BertModel):
    """A model whose attention transformers cannot change."""

    def set_attn_implementation(self, *args: Any, **kwargs: Any) -> None:
        """Leave it as it is."""


def test_a_model_whose_attention_is_fixed_is_refused_and_left_as_it_was() -> None:
    model = Fixed(tiny_model("bert").config)
    before = (model.config.to_dict(), list(model.state_dict()))
    with pytest.raises(ValueError, match="cannot change the attention of BertSelfAttention"):
        attach(model, JUMP)
    assert (model.config.to_dict(), list(model.state_dict())) == before and traces(model) == []
