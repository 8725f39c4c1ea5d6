"""Heads that read by clusters, attached: chosen layers and heads, beside heads of other kinds."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from torch.testing import assert_close
from torch_geometric.nn import GCNConv

from jat_graph import ClusterGraph, JatConfig, clustered_attention
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
    assert_padding_changes_nothing,
    run,
    tiny_config,
    tiny_inputs,
    tiny_model,
)
from tests.hf.test_adapter import lora, traces
from tests.hf.test_interface_training import gradients

SOME = JatConfig.clustered(**SETTINGS, heads=(1, 3))
ALL = JatConfig.clustered(**SETTINGS)
NAMES = ["bert", "roberta", "distilbert", "albert", "electra", "modernbert", "vit", "eurobert"]


def heads_read(model: Any, inputs: dict[str, Tensor]) -> tuple[list[Tensor], Tensor]:
    """Return queries, keys and values of BERT's first layer, and what its heads read of them."""
    module, seen = model.encoder.layer[0].attention.self, {}
    hooks = [
        part.register_forward_hook(lambda *call, name=name: seen.update({name: call[-1]}))
        for name, part in (("q", module.query), ("k", module.key), ("v", module.value))
    ]
    hooks.append(module.register_forward_hook(lambda *call: seen.update(out=call[-1][0])))
    run(model, inputs)
    for hook in hooks:
        hook.remove()
    parts = [seen[name].unflatten(-1, (4, -1)).transpose(1, 2) for name in ("q", "k", "v", "out")]
    return parts[:3], parts[3]


@pytest.mark.parametrize(("lengths", "side"), PADDINGS)
def test_chosen_heads_read_as_the_function_does_and_others_as_before(
    lengths: tuple[int, ...], side: str
) -> None:
    inputs = tiny_inputs("bert", lengths, side=side)
    parts, got = heads_read(attach(tiny_model("bert"), SOME), inputs)
    mask = inputs.get("attention_mask")
    mask = None if mask is None else mask.bool()
    want = clustered_attention(*parts, attention_mask=mask, **SETTINGS)
    _, base = heads_read(tiny_model("bert"), inputs)
    assert torch.equal(got[:, [1, 3]], want[:, [1, 3]])
    assert torch.equal(got[:, [0, 2]], base[:, [0, 2]])
    assert not torch.allclose(want[:, [1, 3]], base[:, [1, 3]], atol=1e-3)


def test_tables_give_each_layer_and_head_its_own() -> None:
    keys = ((4, 0, 2, 2), (1, 1, 1, 1), (2, 4, 2, 4))
    dense = ((0, 0, 0, math.inf), (0, 0, 0, 0), (math.inf,) * 4)
    config = JatConfig.clustered(**SETTINGS | {"keys": keys, "dense_below": dense})
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


@pytest.mark.parametrize("name", NAMES)
def test_all_heads_are_the_model_on_its_name_and_come_off_again(name: str) -> None:
    model, inputs = FAMILIES[name].build(), FAMILIES[name].inputs(LENGTHS, "right")
    base, settings = run(model, inputs), model.config.to_dict()
    attach(model, ALL)
    got = run(model, inputs)
    assert_close(got, run(clustered_model(name), inputs), rtol=0, atol=1e-5)
    assert not torch.allclose(got, base, atol=1e-3)
    assert torch.equal(run(copy.deepcopy(model), inputs), got)
    with disabled(model):
        assert torch.equal(run(model, inputs), base)
    assert attached_config(model, ClusterGraph) == ALL
    assert attached_config(model) is None
    assert traces(detach(model)) == []
    assert model.config.to_dict() == settings
    assert torch.equal(run(model, inputs), base)


@pytest.mark.parametrize(
    "settings", [{}, {"size": 32, "segment": 32, "dense_below": 0}, {"dense_below": math.inf}]
)
@pytest.mark.parametrize("name", NAMES)
def test_short_inputs_are_the_base_to_the_bit(name: str, settings: dict[str, float]) -> None:
    model, inputs = FAMILIES[name].build(), FAMILIES[name].inputs(LENGTHS, "right")
    base = run(model, inputs)
    assert torch.equal(run(attach(model, JatConfig.clustered(**settings)), inputs), base)


@pytest.mark.parametrize("name", ["bert", "distilbert", "modernbert"])
@pytest.mark.parametrize(("lengths", "side"), PADDINGS)
def test_padding_changes_no_token(name: str, lengths: tuple[int, ...], side: str) -> None:
    model, inputs = attach(tiny_model(name), ALL), tiny_inputs(name, lengths, side=side)
    assert_padding_changes_nothing(model, inputs, lengths, side, 1e-5)


def test_layers_are_chosen_and_windows_of_a_models_own_are_left() -> None:
    model = attach(tiny_model("bert"), SOME.replace(layers=(0, 2)))
    assert "layers 0, 2: cluster heads 1, 3 of 4" in summary(model)
    model = attach(tiny_model("modernbert"), ALL)  # two of its layers are local
    assert "layer 0: cluster heads 0-3 of 4" in summary(model)
    assert summary(model).count("cluster heads") == 1
    attach(tiny_model("bart"), ALL.replace(layers=(0, 1)))  # its encoder


def test_heads_of_both_kinds_live_in_one_model(tmp_path: Path) -> None:
    configs: list[Any] = [tiny_config(heads=1, layers=(0, 1)), SOME.replace(layers=(0,))]
    model, inputs = tiny_model("bert"), tiny_inputs("bert", LENGTHS)
    base = run(model, inputs)
    for config in configs:
        attach(model, config)
    words = ["jump heads 0 of 4", "cluster heads 1, 3 of 4"]
    assert all(word in summary(model).replace("\n    ", " ") for word in words)
    _, got = heads_read(model, inputs)
    _, alone = heads_read(attach(tiny_model("bert"), configs[1]), inputs)
    assert torch.equal(got[:, [1, 3]], alone[:, [1, 3]])
    _, jumping = heads_read(attach(tiny_model("bert"), configs[0]), inputs)
    assert_close(got[:, :1], jumping[:, :1], rtol=0, atol=1e-6)
    with capture_scores(model) as layers:
        want = run(model, inputs)
    assert [layer.layer for layer in layers] == [0, 1]
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(hf.AutoModel, tmp_path)
    assert torch.equal(run(loaded, inputs), want)
    detach(loaded, ClusterGraph)
    assert attached_config(loaded) == configs[0]
    assert attached_config(loaded, ClusterGraph) is None
    assert "cluster heads" not in summary(loaded)
    attach(loaded, configs[1])
    assert torch.equal(run(loaded, inputs), want)
    detach(loaded, JatConfig)  # both kinds
    assert (attached_config(loaded), attached_config(loaded, ClusterGraph)) == (None, None)
    assert torch.equal(run(loaded, inputs), base)


@pytest.mark.parametrize("name", ["bert", "albert", "modernbert"])
def test_a_saved_model_loads_by_us_and_by_transformers_alone(name: str, tmp_path: Path) -> None:
    model, inputs = attach(tiny_model(name), ALL), tiny_inputs(name, LENGTHS)
    want, weights = run(model, inputs), list(model.state_dict())
    assert weights == list(tiny_model(name).state_dict())
    save_pretrained(model, tmp_path)
    assert "cluster heads 0-3 of 4" in (tmp_path / "README.md").read_text()
    assert torch.equal(run(from_pretrained(hf.AutoModel, tmp_path), inputs), want)
    plain = hf.AutoModel.from_pretrained(tmp_path)
    assert torch.equal(run(plain, inputs), want)
    assert summary(plain) == summary(model)
    named = hf.AutoModel.from_pretrained(tmp_path, attn_implementation="jat")
    assert torch.equal(run(named, inputs), want)


def test_a_table_comes_back_with_the_model(tmp_path: Path) -> None:
    config = ALL.replace(keys=((3, 1, 2, 2), (1, 1, 1, 1), (2, 3, 2, 3)))
    model, inputs = attach(tiny_model("bert"), config), tiny_inputs("bert", LENGTHS)
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(hf.AutoModel, tmp_path)
    assert attached_config(loaded, ClusterGraph) == config
    assert torch.equal(run(loaded, inputs), run(model, inputs))


def test_no_attentions_are_given() -> None:
    model, inputs = attach(tiny_model("bert"), SOME), tiny_inputs("bert")
    with torch.no_grad():
        assert not model(**inputs, output_attentions=True).attentions
        with disabled(model):
            assert len(model(**inputs, output_attentions=True).attentions) == 3


def test_gradients_checkpointing_and_compiled_models() -> None:
    torch._dynamo.reset()
    model = attach(tiny_model("bert", num_hidden_layers=2), SOME)
    inputs = tiny_inputs("bert", LENGTHS)
    wanted = gradients(model, inputs)
    with disabled(model):
        base = gradients(model, inputs)
    assert any(not torch.allclose(base[key], grad, rtol=1e-2) for key, grad in wanted.items())
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for lengths in ((12, 7), (13, 9)):
        some = tiny_inputs("bert", lengths)
        assert_close(run(compiled, some), run(model, some), rtol=0, atol=1e-5)
    model.train()
    wanted = gradients(model, inputs)
    model.activation_checkpointing_enable({"use_reentrant": False})
    got = gradients(model, inputs)
    assert all(torch.equal(got[key], grad) for key, grad in wanted.items())
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_lora_goes_with_them(tmp_path: Path) -> None:
    tiny_model("bert").save_pretrained(tmp_path / "base")
    model = lora(attach(hf.BertModel.from_pretrained(tmp_path / "base"), SOME))
    inputs = tiny_inputs("bert", LENGTHS)
    save_pretrained(model, tmp_path / "adapter")
    again = from_pretrained(hf.AutoModel, tmp_path / "adapter")
    assert torch.equal(run(again, inputs), run(model, inputs))
    assert attached_config(again, ClusterGraph) == SOME


REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "layers must leave out 1, whose ModernBertAttention reads within a window of its own": (
        lambda: attach(tiny_model("modernbert"), ALL.replace(layers=(0, 1))),
        "a window",
    ),
    "BertModel already has cluster heads; detach them first": (
        lambda: attach(attach(tiny_model("bert"), SOME), SOME.replace(heads=(0,))),
        "twice",
    ),
    "head 1 of layer 0 is a cluster head and cannot be a jump head": (
        lambda: attach(attach(tiny_model("bert"), SOME), tiny_config(heads=2)),
        "one head",
    ),
    "keys table must have 3 rows, one for each layer, got 1": (
        lambda: attach(tiny_model("bert"), ALL.replace(keys=((1, 2, 3, 4),))),
        "rows",
    ),
    "conv needs a JatConfig of jump heads, got cluster heads": (
        lambda: attach(tiny_model("bert"), ALL, conv=GCNConv),
        "a layer",
    ),
    "excluded_token_ids must not be set with graph='clusters'": (
        lambda: attach(tiny_model("bert"), ALL, [1, 2]),
        "tokens",
    ),
    "pattern must be None beside cluster heads, which read all keys": (
        lambda: attach(attach(tiny_model("bert"), SOME), tiny_config(heads=1, pattern="window:4")),
        "a pattern",
    ),
    "layers must be None, because one AlbertAttention serves several layers": (
        lambda: attach(tiny_model("albert"), ALL.replace(layers=(0,))),
        "shared",
    ),
    "model must have jump heads on pairs for graphs from outside, got none": (
        lambda: using_graphs(attach(tiny_model("bert"), ALL), []).__enter__(),
        "graphs",
    ),
}


@pytest.mark.parametrize(
    ("message", "call"),
    [pytest.param(text, call, id=name) for text, (call, name) in REFUSALS.items()],
)
def test_what_does_not_go_is_said_in_one_line(message: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=message) as seen:
        call()
    assert "\n" not in str(seen.value)


def test_a_tokenizer_is_no_harm() -> None:
    """Its marks are for stones."""
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=_words())
    attach(tiny_model("bert"), ALL, tokenizer)


def _words() -> Any:
    from tokenizers import Tokenizer, models

    return Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
