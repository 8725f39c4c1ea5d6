"""Models whose weights are no parameters, or are elsewhere; and attaching that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
import transformers as hf
from accelerate.hooks import ModelHook, add_hook_to_module
from torch import nn

from jat_graph import JatConfig, calibrate
from jat_graph.hf import attach, attached_config, detach
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_model

KINDS: dict[str, Any] = {
    "pairs": tiny_config(),
    "layers": tiny_config(hop_weights=(0.0, 1.0), conv="GATv2Conv"),
    "stones": JatConfig.stones(),
    "clusters": JatConfig.clustered(keys=2, size=2, segment=4, dense_below=0),
}


def change(model: nn.Module, form: str, folder: Path) -> None:
    if form == "packed":  # in buffers, codes first, as those of GPTQ
        for layer in (m for m in model.modules() if isinstance(m, nn.Linear)):
            layer.register_buffer("qweight", layer.weight.detach().to(torch.int8))
            for name, weight in list(layer.named_parameters()):
                delattr(layer, name)
                layer.register_buffer(name, weight.detach())
    elif form == "quantized":
        torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8, inplace=True)
    else:
        accelerate.disk_offload(model, folder, execution_device=torch.device("cpu"))
        add_hook_to_module(model, ModelHook(), append=True)  # others may add theirs


def strengthen(model: nn.Module) -> None:
    for module in (m for m in model.modules() if hasattr(m, "theta")):
        nn.init.constant_(module.theta, 0.5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*quantiz")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["packed", "quantized", "on disk"])
def test_heads_go_on_weights_that_are_elsewhere(form, kind, tmp_path):
    model, inputs = tiny_model("bert"), tiny_inputs("bert", (12, 8))
    change(model, form, tmp_path)
    base, names = run(model, inputs), {name for name, _ in model.named_parameters()}
    attach(model, KINDS[kind])
    own = [p for name, p in model.named_parameters() if name not in names]
    assert all((p.device.type, p.dtype) == ("cpu", torch.float32) for p in own)
    assert torch.equal(run(model, inputs), base) == (kind in ("layers", "stones"))
    strengthen(model)
    assert not torch.allclose(run(model, inputs), base, atol=1e-4)
    assert torch.equal(run(detach(model), inputs), base)
    assert calibrate(model, [inputs], density=0.2, config=JatConfig()).graph.threshold


@pytest.mark.parametrize("said", [None, torch.bfloat16])
def test_what_they_learn_is_as_precise_as_the_model(said):
    model = tiny_model("bert").half()
    change(model, "packed", Path())
    model.config.dtype = said
    learned = attach(model, JatConfig.stones()).encoder.layer[0].attention.self.strength
    assert learned.theta.dtype == (said or torch.float16)


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_nobody_may_look_at_are_refused_in_a_line(kind):
    model, states = attach(tiny_model("bert"), KINDS[kind]), torch.randn(2, 1, 6, 32)
    strengthen(model)
    with pytest.raises(ValueError, match=r"query must have values .*func\.vmap[^\n]*\Z"):
        torch.func.vmap(lambda x: model(inputs_embeds=x)[0])(states)
    with pytest.raises(ValueError, match=r"query must have values .*device meta\Z"):
        model.to("meta")(inputs_embeds=states[0].to("meta"))


def test_clusters_by_name_leave_them_to_sdpa():
    model, states = tiny_model("bert", max_position_embeddings=600), torch.randn(1, 600, 32)
    model.set_attn_implementation("clustered")
    with pytest.warns(UserWarning, match="SDPA .*values of its tensors cannot be read"):
        assert model.to("meta")(inputs_embeds=states.to("meta"))[0].is_meta


def held(model: hf.PreTrainedModel) -> Any:
    """Return all that the modules of a model hold, by identity, and its configuration."""
    names = [(x, name) for x in map(vars, model.modules()) for name in x]
    inner = [list(x[name]) if isinstance(x[name], dict) else None for x, name in names]
    return [(name, id(x[name])) for x, name in names], inner, model.config.to_dict()


@pytest.mark.slow
@pytest.mark.parametrize("config", [JatConfig.stones(heads=1), tiny_config(layers=(9,))])
@pytest.mark.parametrize("before", ["nothing", "clusters", "by name", "by a wrong name"])
def test_a_model_that_gets_no_heads_is_as_it_was(before, config, tmp_path):
    model = tiny_model("bert")
    if before != "nothing":
        attach(model, JatConfig.clustered(heads=(3,)))
    if before.startswith("by"):
        attach(model, tiny_config(heads=2)).save_pretrained(tmp_path)
        model = hf.AutoModel.from_pretrained(tmp_path)
        model.config.jat_clusters["heads"] = [99] if before == "by a wrong name" else [3]
    known = held(model)
    with pytest.raises((ZeroDivisionError, ValueError)):
        attach(model, config, conv=lambda size: 1 // 0)
    assert held(model) == known
    if before == "by a wrong name":
        with pytest.raises(ValueError, match="needs head 99"):
            attached_config(model)
        assert held(model) == known
