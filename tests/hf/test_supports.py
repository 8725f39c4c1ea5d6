"""What a model's layers will do is told before anything is read, and is what they then do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn
from transformers.models.t5.modeling_t5 import T5Attention

import jat_graph
from jat_graph import JatConfig
from jat_graph.hf import register_clustered, summary, supports
from tests.hf.models import ENCODER, SIDE, VOCABULARY, tiny_model

SIZES: dict[str, Any] = ENCODER | {"num_hidden_layers": 2}
BART: dict[str, Any] = {"vocab_size": VOCABULARY, "d_model": 32, "max_position_embeddings": 64}
BART |= {f"{part}_{key}": x for part in ("encoder", "decoder") for key, x in SIDE.items()}
VISION = {"vision_config": {**SIZES, "image_size": 32, "patch_size": 16}}
SERIES = {"prediction_length": 4, "context_length": 12, "lags_sequence": [1], "d_model": 32} | BART
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 4, "vocab_size": 99}
NO_SDPA = "its model does not support scaled dot product attention"
NO_INTERFACE = "it does not go through transformers' attention interface"
SINKS = "it has attention sinks, which no scaled dot product attention has"
WITHIN = "it reads within a window, or chunks, of its model's own"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "PegasusX": (BART, NO_SDPA),
    "NllbMoe": (BART | {"num_experts": 2}, NO_SDPA),
    "Git": (SIZES | VISION, NO_SDPA),
    "Informer": (SERIES, NO_SDPA),
    "BigBirdPegasus": (BART, NO_SDPA),
    "MPNet": (SIZES, NO_SDPA),
    "DebertaV2": (SIZES, NO_SDPA),
    "Longformer": (SIZES | {"attention_window": 4}, NO_SDPA),
    "Bloom": (SIZES, NO_SDPA),
    "Falcon": (SIZES, NO_INTERFACE),
    "GptOss": (SIZES | {"num_key_value_heads": 2, "num_local_experts": 2}, NO_SDPA),
}


def model_of(name: str, settings: dict[str, Any], **options: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(hf, f"{name}Config")(**settings)
    return getattr(hf, f"{name}Model")._from_config(config, **options).eval()


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_run_on_sdpa_is_refused_on_the_name(name):
    settings, why = REFUSED[name]
    with pytest.raises(ValueError, match=f"^{name}\\w* cannot run on 'clustered', because {why}"):
        model_of(name, settings, attn_implementation="clustered")
    rows = supports(model_of(name, settings))
    assert {row.reads for row in rows} == {"its own attention"}
    assert {row.why for row in rows} <= {NO_SDPA, NO_INTERFACE, SINKS}
    assert (SINKS in {row.why for row in rows}) == (name == "GptOss")


@pytest.mark.parametrize("name", ["PegasusX", "NllbMoe", "Git"])
def test_a_name_that_is_taken_later_is_refused_at_the_first_text(name):
    model = model_of(name, REFUSED[name][0])
    model.set_attn_implementation("clustered")
    ids = torch.randint(3, 20, (1, 9))
    more = {} if name == "Git" else {"decoder_input_ids": ids}
    with pytest.raises(ValueError, match=f"cannot run on 'clustered', because {NO_SDPA}"):
        model(input_ids=ids, **more)


def test_a_part_that_cannot_run_on_sdpa_is_named_its_own_attention():
    parts = {"text_config": hf.LlamaConfig(**SIZES), "vision_config": hf.MPNetConfig(**SIZES)}
    with pytest.raises(ValueError, match=f"MPNetModel cannot run .* {NO_SDPA}.* a name for each"):
        model_of("Llava", parts, attn_implementation="clustered")
    names = {"text_config": "clustered", "vision_config": "eager"}
    model = model_of("Llava", parts, attn_implementation=names)
    assert model.language_model.config._attn_implementation == "clustered"
    reads = [row.reads for row in supports(model)]
    assert reads == ["its own attention"] * 2 + ["cluster heads"] * 2


def test_a_row_for_each_module_says_what_it_does_and_why():
    model = tiny_model("bart")
    rows = supports(model)
    modules = dict(model.named_modules())
    assert all(type(modules[row.name]).__name__ == row.attention for row in rows)
    crossing = [row for row in rows if row.name.endswith("encoder_attn")]
    assert {(row.reads, row.why) for row in crossing} == {("SDPA", "it is cross-attention")}
    others = [row for row in rows if row not in crossing]
    assert {(row.reads, row.why) for row in others} == {("cluster heads", None)}


def test_layers_within_windows_are_told_apart():
    types = ["sliding_attention", "full_attention"]
    settings = SIZES | {"num_key_value_heads": 2, "head_dim": 8, "layer_types": types}
    rows = supports(model_of("Gemma3Text", settings | {"sliding_window": 8}))
    assert [(row.reads, row.why) for row in rows] == [("SDPA", WITHIN), ("cluster heads", None)]


@pytest.mark.parametrize("layers", [None, (1,)])
def test_settings_of_jump_heads_are_asked_for_their_own(layers):
    model = tiny_model("bert")
    rows = supports(model, JatConfig.stones(layers=layers))
    other = "the settings leave its layer out"
    chosen = range(len(rows)) if layers is None else layers
    for index, row in enumerate(rows):
        assert row[2:] == (("jump heads", None) if index in chosen else ("SDPA", other))
    refused = supports(tiny_model("gpt2"), JatConfig.stones(key_selection="sampled"))
    assert {row.reads for row in refused} == {"SDPA"}
    assert all("is causal" in str(row.why) for row in refused)


def test_a_summary_tells_a_name_and_what_heads_leave_alone():
    model = tiny_model("bart")
    attached = summary(jat_graph.attach(tiny_model("bart"), JatConfig.clustered()))
    assert attached.splitlines()[-1] == "  2 BartAttention: SDPA, because it is cross-attention"
    model.set_attn_implementation(register_clustered(keys=64))
    lines = summary(model).splitlines()
    assert lines[0] == "BartModel runs on 'clustered:keys=64'"
    assert "  4 BartAttention: cluster heads" in lines


def test_what_holds_no_model_is_refused():
    with pytest.raises(ValueError, match="model must be a model of transformers, or hold one"):
        supports(nn.Linear(2, 2))


def test_from_pretrained_loads_on_the_name_or_says_why_it_does_not(tmp_path):
    tiny_model("bert").save_pretrained(tmp_path / "bert")
    loaded = jat_graph.from_pretrained(
        hf.AutoModel, tmp_path / "bert", attn_implementation="clustered"
    )
    assert loaded.config._attn_implementation == "clustered"
    model_of("MPNet", SIZES).save_pretrained(tmp_path / "mpnet")
    with pytest.raises(
        ValueError, match=f"MPNetModel cannot run on 'clustered', because {NO_SDPA}"
    ):
        jat_graph.from_pretrained(hf.AutoModel, tmp_path / "mpnet", attn_implementation="clustered")
    model_of("T5", T5).save_pretrained(tmp_path / "t5")
    with pytest.raises(ValueError, match=r"T5Model cannot read by clusters: .* a position bias"):
        jat_graph.from_pretrained(hf.AutoModel, tmp_path / "t5", attn_implementation="clustered")


@pytest.mark.slow
@pytest.mark.parametrize("named", ["when it is built", "before it reads"])
def test_another_process_that_unpickles_a_model_knows_the_name(named, tmp_path):
    model = tiny_model("bert")
    ids = torch.arange(3, 12)[None]
    if named == "when it is built":
        model = type(model)._from_config(model.config, attn_implementation="clustered").eval()
    model.set_attn_implementation("clustered")
    with torch.no_grad():
        want = model(ids).last_hidden_state if named == "before it reads" else None
    torch.save(model, tmp_path / "model.pt")
    read = "import sys, torch; model = torch.load(sys.argv[1], weights_only=False).eval()"
    code = f"{read}; torch.save(model(torch.arange(3, 12)[None])[0], sys.argv[2])"
    words = [sys.executable, "-c", code, tmp_path / "model.pt", tmp_path / "states.pt"]
    subprocess.run(words, check=True)
    if want is not None:
        # Another process may have another number of threads, and so other sums.
        torch.testing.assert_close(torch.load(tmp_path / "states.pt"), want)


class Passing(T5Attention):
    """Attention of somebody's own that hands on what it is given."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


class Crossing(nn.Module):
    """A model whose path begins like that of cross-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.cross_encoder = tiny_model("bert")


def test_somebodys_own_classes_are_what_they_are_made_of():
    narrow = type("Narrow", (hf.PegasusXConfig,), {})
    model = hf.PegasusXModel(narrow(**BART)).eval()
    model.set_attn_implementation("clustered")
    ids = torch.randint(3, 20, (1, 9))
    with pytest.raises(ValueError, match=f"cannot run on 'clustered', because {NO_SDPA}"):
        model(input_ids=ids, decoder_input_ids=ids)
    assert {row.reads for row in supports(Crossing())} == {"cluster heads"}
    t5 = model_of("T5", T5)
    before = [row.why for row in supports(t5)]
    for module in t5.modules():
        if type(module) is T5Attention:
            module.__class__ = Passing
    assert [row.why for row in supports(t5)] == before
    assert "it adds a position bias to its scores" in before


def test_layers_and_heads_that_are_not_there_are_refused():
    for settings in ({"layers": (7,)}, {"heads": (9,)}):
        with pytest.raises(ValueError, match=r"needs (layer 7|head 9)"):
            supports(tiny_model("bert"), JatConfig.clustered(**settings))


def test_a_summary_tells_each_name_of_a_model():
    parts = {"text_config": hf.LlamaConfig(**SIZES), "vision_config": hf.CLIPVisionConfig(**SIZES)}
    names = {"text_config": "clustered:keys=8", "vision_config": "clustered:keys=16"}
    lines = summary(model_of("Llava", parts, attn_implementation=names)).splitlines()
    assert sorted(lines) == [
        "  2 CLIPAttention: cluster heads",
        "  2 LlamaAttention: cluster heads",
        "LlavaModel runs on 'clustered:keys=16'",
        "LlavaModel runs on 'clustered:keys=8'",
    ]
