"""Models whose weights are no parameters, or are elsewhere; and attaching that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
import transformers as hf
from accelerate.hooks import ModelHook, add_hook_to_module
from torch import Tensor, nn

from jat_graph import JatConfig, PairGraph, calibrate
from jat_graph.hf import FilterConfig, TripletConfig, attach, attached_config, detach, summary
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_model

CPU = torch.device("cpu")
KINDS: dict[str, Any] = {
    "pairs": tiny_config(),
    "layers": tiny_config(hop_weights=(0.0, 1.0), conv="GATv2Conv"),
    "stones": JatConfig.stones(),
    "clusters": JatConfig.clustered(clusters=3, keys=1, block=2, dense_below=0),
    "filters": FilterConfig(),
    "triplets": TripletConfig(),
}


class Packed(nn.Module):
    """A linear layer whose weights are codes in buffers, as those of GPTQ and AWQ."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        scales = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("qweight", (linear.weight.detach() / scales).round().to(torch.int8))
        self.register_buffer("scales", scales)
        self.register_buffer("bias", linear.bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.qweight * self.scales, self.bias)


def change(model: nn.Module, form: str, folder: Path) -> None:
    """Put the weights of a model into another form, or elsewhere."""
    if form == "packed":
        for module in list(model.modules()):
            for name, child in module.named_children():
                setattr(module, name, Packed(child) if isinstance(child, nn.Linear) else child)
    elif form == "quantized":
        torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8, inplace=True)
    elif form == "on disk":
        accelerate.disk_offload(model, folder, execution_device=CPU)
    else:
        accelerate.cpu_offload(model, execution_device=CPU)
        for module in list(model.modules()):  # as others add hooks of their own
            add_hook_to_module(module, ModelHook(), append=True)


def strengthen(model: nn.Module) -> None:
    for module in model.modules():
        if hasattr(module, "theta"):
            nn.init.constant_(module.theta, 0.5)


@pytest.mark.filterwarnings("ignore:.*quantiz")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["packed", "quantized", "on disk", "offloaded"])
def test_heads_go_on_models_whose_weights_are_elsewhere(
    form: str, kind: str, tmp_path: Path
) -> None:
    model, inputs = tiny_model("bert"), tiny_inputs("bert", (12, 8))
    change(model, form, tmp_path)
    base, names = run(model, inputs), {name for name, _ in model.named_parameters()}
    attach(model, KINDS[kind])
    own = [p for name, p in model.named_parameters() if name not in names]
    assert all((p.device, p.dtype) == (CPU, torch.float32) for p in own)
    learning = kind in ("layers", "stones", "filters")
    assert torch.equal(run(model, inputs), base) == learning
    strengthen(model)
    assert not torch.allclose(run(model, inputs), base, atol=1e-4)
    assert len(summary(model).splitlines()) > 1
    assert torch.equal(run(detach(model), inputs), base)
    if kind == "pairs":
        config = calibrate(model, [inputs], density=0.2, config=JatConfig())
        assert len(config.graph.threshold) == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_they_learn_is_of_the_precision_that_the_model_computes_in(dtype: torch.dtype) -> None:
    packed, coded = tiny_model("bert").to(dtype), tiny_model("bert").to(dtype)
    change(packed, "packed", Path())
    for layer in (m for m in coded.modules() if isinstance(m, nn.Linear)):
        layer.weight = nn.Parameter(layer.weight.to(torch.float8_e4m3fn), requires_grad=False)
    for model in (packed, coded):
        strengths = attach(model, JatConfig.stones()).encoder.layer[0].attention.self.strength
        assert strengths.theta.dtype == dtype


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_nobody_may_look_at_are_refused_in_a_line(kind: str) -> None:
    model, states = attach(tiny_model("bert"), KINDS[kind]), torch.randn(2, 1, 6, 32)
    strengthen(model)
    with pytest.raises(ValueError, match=r"query must have values .*func\.vmap[^\n]*\Z"):
        torch.func.vmap(lambda x: model(inputs_embeds=x)[0])(states)
    with pytest.raises(ValueError, match=r"query must have values .*device meta\Z"):
        model.to("meta")(inputs_embeds=states[0].to("meta"))


def test_clusters_by_name_leave_them_to_sdpa() -> None:
    model, states = tiny_model("bert", max_position_embeddings=600), torch.randn(1, 600, 32)
    model.set_attn_implementation("clustered")
    with pytest.warns(UserWarning, match="SDPA .*values of its tensors cannot be looked at"):
        assert model.to("meta")(inputs_embeds=states.to("meta"))[0].is_meta


def held(model: hf.PreTrainedModel) -> Any:
    """Return all that the modules of a model hold, by identity, and its configuration."""
    tables = [vars(module) for module in model.modules()]
    tables += [x for own in tables for x in own.values() if isinstance(x, dict)]
    ids = [[(name, id(value)) for name, value in table.items()] for table in tables]
    return ids, model.config.to_dict(), model.config._attn_implementation


@pytest.mark.parametrize(
    "config",
    [
        JatConfig.stones(heads=1),
        JatConfig(heads=99),
        JatConfig(PairGraph(threshold=((1.0,),)), heads=1),
        TripletConfig(layers=(9,)),
    ],
)
@pytest.mark.parametrize("before", ["nothing", "clusters", "by name", "by a wrong name"])
def test_a_model_that_gets_no_heads_is_as_it_was(before: str, config: Any, tmp_path: Path) -> None:
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
