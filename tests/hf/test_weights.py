"""Models whose weights are no parameters, or are elsewhere; and attaching that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
import transformers as hf
from accelerate.hooks import ModelHook, add_hook_to_module
from torch import Tensor, nn
from torch.testing import assert_close

from jat_graph import JatConfig, PairGraph, calibrate
from jat_graph.hf import (
    FilterConfig,
    TripletConfig,
    attach,
    attached_config,
    detach,
    save_pretrained,
    summary,
)
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_model

CPU = torch.device("cpu")
CLUSTERS = JatConfig.clustered(clusters=3, keys=1, block=2, dense_below=0)
KINDS: dict[str, Any] = {
    "pairs": tiny_config(),
    "strong pairs": tiny_config(hop_weights=(0.0, 1.0), strength="learned"),
    "layers": tiny_config(hop_weights=(0.0, 1.0), conv="GATv2Conv"),
    "stones": JatConfig.stones(),
    "clusters": CLUSTERS,
    "filters": FilterConfig(),
    "triplets": TripletConfig(),
}
LEARNING = {"strong pairs", "layers", "stones", "filters"}


class Packed(nn.Module):
    """A linear layer whose weights are codes in buffers, as those of GPTQ and AWQ."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach()
        scales = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("qweight", (weight / scales).round().to(torch.int8))
        self.register_buffer("scales", scales)
        self.register_buffer("bias", linear.bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.qweight * self.scales, self.bias)


def pack(model: nn.Module) -> None:
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Packed(child))


def quantize(model: nn.Module) -> None:
    torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8, inplace=True)


def offload(model: nn.Module) -> None:
    accelerate.cpu_offload(model, execution_device=CPU)
    for module in list(model.modules()):  # as others add hooks of their own
        add_hook_to_module(module, ModelHook(), append=True)


def strengthen(model: nn.Module) -> None:
    for module in model.modules():
        if hasattr(module, "theta"):
            nn.init.constant_(module.theta, 0.5)


FORMS: dict[str, Callable[..., Any]] = {
    "packed": lambda model, folder: pack(model),
    "quantized": lambda model, folder: quantize(model),
    "offloaded": lambda model, folder: offload(model),
    "on disk": lambda model, folder: accelerate.disk_offload(model, folder, execution_device=CPU),
}
pytestmark = pytest.mark.filterwarnings("ignore:.*quantiz")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_heads_go_on_models_whose_weights_are_elsewhere(
    form: str, kind: str, tmp_path: Path
) -> None:
    model, inputs = tiny_model("bert"), tiny_inputs("bert", (12, 8))
    FORMS[form](model, tmp_path)
    base, names = run(model, inputs), {name for name, _ in model.named_parameters()}
    attach(model, KINDS[kind])
    own = [p for name, p in model.named_parameters() if name not in names]
    assert all((p.device, p.dtype) == (CPU, torch.float32) for p in own)
    assert torch.equal(run(model, inputs), base) == (kind in LEARNING)
    strengthen(model)
    assert not torch.allclose(run(model, inputs), base, atol=1e-4)
    assert len(summary(model).splitlines()) > 1
    assert_close(run(detach(model), inputs), base, atol=0, rtol=0)


@pytest.mark.parametrize("form", FORMS)
def test_they_are_calibrated(form: str, tmp_path: Path) -> None:
    model, inputs = tiny_model("bert"), tiny_inputs("bert", (12, 8))
    wanted = calibrate(model, [inputs], density=0.2, config=JatConfig()).graph.threshold
    FORMS[form](model, tmp_path)
    got = calibrate(model, [inputs], density=0.2, config=JatConfig()).graph.threshold
    assert_close(torch.tensor(got), torch.tensor(wanted), atol=0, rtol=0.1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_what_they_learn_is_of_the_precision_that_the_model_computes_in(dtype: torch.dtype) -> None:
    def learned(model: nn.Module) -> set[torch.dtype]:
        attach(model, tiny_config(hop_weights=(0.0, 1.0), conv="GATv2Conv"))
        return {p.dtype for name, p in model.named_parameters() if ".jump_conv." in name}

    model = tiny_model("bert").to(dtype)
    pack(model)
    assert learned(model) == {dtype}  # that of the scales
    assert run(model, tiny_inputs("bert")).dtype == dtype
    model = tiny_model("bert")
    pack(model)
    model.config.dtype = dtype
    assert learned(model) == {dtype}
    coded = tiny_model("bert").to(dtype)
    for layer in (m for m in coded.modules() if isinstance(m, nn.Linear)):
        layer.weight = nn.Parameter(layer.weight.to(torch.float8_e4m3fn), requires_grad=False)
    assert learned(coded) == {dtype}  # and not the one of the codes


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_values_that_nobody_may_look_at_are_refused_in_a_line(kind: str) -> None:
    model, states = attach(tiny_model("bert"), KINDS[kind]), torch.randn(2, 1, 6, 32)
    strengthen(model.requires_grad_(False))

    def call(x: Tensor) -> Tensor:
        output: Tensor = model(inputs_embeds=x)[0]
        return output

    with pytest.raises(ValueError, match=r"query must have values .*jit\.trace[^\n]*\Z"):
        torch.jit.trace(call, (states[0],))
    with pytest.raises(ValueError, match=r"query must have values .*func\.vmap[^\n]*\Z"):
        torch.func.vmap(call)(states)
    with pytest.raises(ValueError, match=r"query must have values .*device meta\Z"):
        model.to("meta")(inputs_embeds=states[0].to("meta"))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", ["clustered:keys=8", "clustered"])
def test_models_by_name_run_on_sdpa_there(name: str) -> None:
    model, states = tiny_model("bert", max_position_embeddings=600), torch.randn(2, 1, 600, 32)
    with torch.no_grad():
        wanted = torch.stack([model(inputs_embeds=x)[0] for x in states])
        model.set_attn_implementation(name)
        with pytest.warns(UserWarning, match="SDPA .*values of its tensors cannot be looked at"):
            got = torch.func.vmap(lambda x: model(inputs_embeds=x)[0])(states)
    assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    assert model.to("meta")(inputs_embeds=states[0].to("meta"))[0].shape == (1, 600, 32)


def held(model: hf.PreTrainedModel) -> Any:
    """Return all that a model and its modules hold: objects, by their identity."""
    tables = [vars(module) for module in model.modules()]
    tables += [x for own in tables for x in own.values() if isinstance(x, dict)]
    ids = [[(name, id(value)) for name, value in table.items()] for table in tables]
    return ids, model.config.to_dict(), model.config._attn_implementation


def explode(size: int) -> nn.Module:
    raise OSError(size)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (JatConfig.stones(heads=1), {"conv": explode}),
        (JatConfig(heads=99), {}),
        (JatConfig.stones(layers=(9,)), {}),
        (JatConfig.stones(), {"tokenizer": ["[CLS]"]}),
        (JatConfig(PairGraph(threshold=((1.0,),)), heads=1), {}),
        (TripletConfig(layers=(9,)), {}),
        ("stones", {}),
    ],
)
@pytest.mark.parametrize("before", ["nothing", "clusters", "by name", "by a wrong name"])
def test_a_model_that_gets_no_heads_is_as_it_was(
    before: str, config: Any, options: Any, tmp_path: Path
) -> None:
    model = tiny_model("bert")
    if before != "nothing":
        attach(model, JatConfig.clustered(heads=(3,)))
    if before.startswith("by"):
        save_pretrained(attach(model, tiny_config(heads=2, layers=None)), tmp_path)
        model = hf.AutoModel.from_pretrained(tmp_path)
        model.config.jat_clusters["heads"] = [99] if before == "by a wrong name" else [3]
    known = held(model)
    with pytest.raises((OSError, ValueError)):
        attach(model, config, **options)
    assert held(model) == known
    if before == "by a wrong name":
        with pytest.raises(ValueError, match="needs head 99"):
            attached_config(model)
        assert held(model) == known


def test_a_model_of_few_heads_reads_within_a_pattern_alone() -> None:
    model = hf.BertModel(hf.BertConfig(hidden_size=32, num_attention_heads=2)).eval()
    attach(model, JatConfig(hop_weights=(1,), pattern="window:4"))
    assert "jump heads 0-1 of 2" in summary(model)
