"""Attention by clusters under its name: what it equals, what is left to SDPA, and its settings."""

import copy
import gc
from itertools import pairwise
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from torch.testing import assert_close
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from jat_graph import JatConfig, attach, clustered_attention, detach
from jat_graph.hf import register_clustered
from tests.hf.encoders import FAMILIES, LENGTHS, SETTINGS, TEXTS, Call, calls, clustered_model
from tests.hf.models import LENGTH, run, tiny_config, tiny_inputs, tiny_jump_model, tiny_model
from tests.support import count_operations

__all__ = ["calls"]
CASES = [pytest.param(name, (LENGTH,) * 3, "right", id=f"{name}-unpadded") for name in FAMILIES]
CASES += [
    pytest.param(name, LENGTHS, side, id=f"{name}-{side}")
    for name in TEXTS
    for side in ("right", "left")
]
LEFT_ALONE = "ignore:.* runs on SDPA instead of clusters:UserWarning"


def on_sdpa(model: hf.PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """Return what a model gives on SDPA."""
    model.set_attn_implementation("sdpa")
    return run(model, inputs)


@pytest.mark.slow
@pytest.mark.filterwarnings(LEFT_ALONE)
@pytest.mark.parametrize(("name", "lengths", "side"), CASES)
def test_each_family_reads_as_the_function_does(name, lengths, side, calls):
    family, model = FAMILIES[name], clustered_model(name)
    inputs = family.inputs(lengths, side)
    run(model, inputs)
    dense = [torch.equal(call.output, dense_output(call)) for call in calls]
    assert (dense.count(False), dense.count(True)) == (family.served, family.others)
    for call, left_alone in zip(calls, dense, strict=True):
        if not left_alone:
            parts = (call.query, call.key, call.value)
            options = {"attention_mask": call.mask, "scale": call.options["scaling"]} | SETTINGS
            want = clustered_attention(*parts, enable_gqa=True, **options)
            assert torch.equal(call.output, want)


def dense_output(call: Call) -> Tensor:
    """Return what transformers' own attention makes of a call."""
    parts = (call.module, call.query, call.key, call.value, call.mask)
    output, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](*parts, **call.options)
    return output.transpose(1, 2)


@pytest.mark.filterwarnings(LEFT_ALONE)
@pytest.mark.parametrize("settings", [{}, {"size": 32, "segment": 32}], ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_short_inputs_are_read_as_by_sdpa_to_the_bit(name, settings):
    model, inputs = FAMILIES[name].build(), FAMILIES[name].inputs(LENGTHS, "right")
    want = on_sdpa(model, inputs)
    if settings:
        model.config.clustered = {"dense_below": 0} | settings
    model.set_attn_implementation("clustered")
    assert torch.equal(run(model, inputs), want)


def four(pairs: Tensor) -> dict[str, Tensor]:
    """Return inputs with a mask of pairs, as transformers takes it."""
    inputs = tiny_inputs("bert", (LENGTH,))
    return inputs | {"attention_mask": pairs[None, None]}


@pytest.mark.parametrize("inference", [False, True])
def test_packed_documents_are_sequences_of_their_own_and_named_once(inference):
    model, sizes = clustered_model("bert", keys=0, segment=2), (5, 7)
    pairs = torch.block_diag(*(torch.ones(size, size) for size in sizes)).bool()
    inputs = four(pairs)
    inputs["position_ids"] = torch.cat([torch.arange(size) for size in sizes])[None]
    with torch.inference_mode(inference), count_operations() as seen:
        whole = run(model, inputs)
    assert seen["jat_graph.packed_documents.default"] == 1  # for three layers
    assert torch.equal(model(**inputs)[0], whole)  # with gradients
    pairs[:] = True
    assert torch.equal(run(model, inputs), run(model, inputs | {"attention_mask": None}))
    pairs[:5, 5:] = pairs[5:, :5] = False
    assert not torch.allclose(whole, on_sdpa(model, inputs), atol=1e-3)
    model.set_attn_implementation("clustered")
    for document, positions in zip(
        inputs["input_ids"].split(sizes, 1), whole.split(sizes, 1), strict=True
    ):
        assert_close(positions, run(model, {"input_ids": document}), rtol=0, atol=1e-5)


MASKS: dict[str, Tensor] = {
    "a band": torch.ones(LENGTH, LENGTH).triu(-3).tril(3).bool(),
    "causal order": torch.ones(LENGTH, LENGTH).tril().bool(),
    "biases": torch.linspace(0, 1, LENGTH * LENGTH).view(LENGTH, LENGTH),
}


@pytest.mark.parametrize("mask", MASKS)
def test_a_mask_that_says_more_is_left_to_sdpa_with_a_warning(mask):
    model, inputs = clustered_model("bert"), four(MASKS[mask])
    wanted = "BertSelfAttention runs on SDPA instead of clusters where its mask has more than pad"
    with pytest.warns(UserWarning, match=wanted) as seen:
        got = run(model, inputs)
    assert len(seen) == 1  # of three layers
    assert torch.equal(got, on_sdpa(model, inputs))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("bart", "BartAttention runs on SDPA instead of clusters where it is cross-attention"),
        ("t5", "T5Attention runs on SDPA instead of clusters where it adds a position bias to its"),
    ],
)
def test_each_model_warns_once_of_what_clusters_do_not_serve(name, wanted):
    for _ in range(2):  # two models
        model = tiny_model("bart") if name == "bart" else FAMILIES[name].build()
        model.set_attn_implementation("clustered")
        inputs = tiny_inputs("bart" if name == "bart" else "roberta", LENGTHS)
        with pytest.warns(UserWarning, match=wanted) as seen:
            run(model, inputs)
            run(model, inputs)
        assert len(seen) == 1
        del model
        gc.collect()


@pytest.mark.parametrize("argument", ["softcap", "s_aux", "sinks", "indices"])
def test_what_sdpa_would_leave_out_is_refused(argument):
    model = tiny_model("bert")
    module, heads = model.encoder.layer[0].attention.self, torch.randn(1, 4, LENGTH, 8)
    wanted = f"BertSelfAttention passes {argument}, which neither clusters nor SDPA can use"
    with pytest.raises(ValueError, match=wanted):
        ALL_ATTENTION_FUNCTIONS["clustered"](
            module, heads, heads, heads, None, **{argument: torch.ones(4)}
        )


def test_a_decoder_of_berts_kind_leaves_cross_attention_of_one_length_alone(calls):
    """An encoder's states of as many tokens as its own cannot be told by their shape."""
    torch.manual_seed(0)
    settings = {"is_decoder": True, "add_cross_attention": True}
    model = hf.BertModel(hf.BertConfig(**tiny_model("bert").config.to_dict() | settings)).eval()
    inputs: dict[str, Any] = tiny_inputs("bert")
    inputs["encoder_hidden_states"] = torch.randn(3, LENGTH, 32)
    rule = {"keys": 2, "groups": 1, "size": 2, "segment": 4, "window": 1, "dense_below": 0}
    model.config.clustered = rule
    model.set_attn_implementation("clustered")
    with pytest.warns(UserWarning, match="CrossAttention .* where it is cross-attention"):
        run(model, inputs)
    dense = [torch.equal(call.output, dense_output(call)) for call in calls]
    assert dense == ["Cross" in type(call.module).__name__ for call in calls]


def test_asking_for_attentions_gives_none_as_with_sdpa():
    model, inputs = clustered_model("bert"), tiny_inputs("bert")
    found = []
    wanted = "BertSelfAttention gives no attention probabilities with clusters: take 'eager'"
    with torch.no_grad():
        with pytest.warns(UserWarning, match=wanted):
            found.append(model(**inputs, output_attentions=True).attentions)
        model.set_attn_implementation("sdpa")
        found.append(model(**inputs, output_attentions=True).attentions)
    assert found[0] == found[1]
    assert not any(row is not None for row in found[0] or ())


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (3, "config.clustered must be a dict of settings, got 3"),
        ({"key": 3}, "unknown config field 'key', wanted one of"),
        ({"keys": -1}, "keys must be at least 0, got -1"),
        ({"threshold": 2.0}, "threshold needs graph='pairs', got 'clusters'"),
        ({"keys": [[1, 2]]}, "keys must be one number for all heads, got a table, which"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(settings, wanted):
    model = clustered_model("bert")
    model.config.clustered = settings
    with pytest.raises(ValueError, match=wanted):
        run(model, tiny_inputs("bert"))
    if isinstance(settings, dict):
        with pytest.raises(ValueError, match=wanted):
            register_clustered(**settings)


def test_a_name_brings_settings_that_count_before_those_of_the_configuration():
    model, inputs = clustered_model("bert"), tiny_inputs("bert", LENGTHS)
    want = run(model, inputs)
    del model.config.clustered
    name = register_clustered(**SETTINGS)
    assert name == "clustered:keys=2,dense_below=0,size=2,segment=4"
    model.set_attn_implementation(name)
    assert torch.equal(run(model, inputs), want)
    model.config.clustered = {"keys": 1, "groups": 5}
    assert torch.equal(run(model, inputs), want)
    assert register_clustered() == "clustered"
    clustered_model("bert").set_attn_implementation("clustered:keys=64")  # is known from the import
    with pytest.raises(ValueError, match='"clustered:keys=7"` is not supported'):
        model.set_attn_implementation("clustered:keys=7")
    model.set_attn_implementation(register_clustered(keys=7))
    assert torch.equal(run(model, inputs), on_sdpa(model, inputs))  # a short input


def test_a_name_reaches_every_part_of_a_model():
    text = {"vocab_size": 50, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    vision = {**text, "image_size": 16, "patch_size": 4}
    vision.pop("vocab_size")
    layers = {"num_hidden_layers": 1}
    config = hf.SiglipConfig(text_config=text | layers, vision_config=vision | layers)
    torch.manual_seed(0)
    model = hf.SiglipModel(config).eval()
    inputs = {"input_ids": tiny_inputs("roberta")["input_ids"]} | tiny_inputs("vit")
    outputs = []
    for name in ("sdpa", register_clustered(**SETTINGS)):
        model.set_attn_implementation(name)
        with torch.no_grad():
            outputs.append(model(**inputs))
    for part in ("text_embeds", "image_embeds"):
        assert not torch.equal(outputs[0][part], outputs[1][part])


def test_nothing_is_kept_but_the_settings(tmp_path):
    model, inputs = clustered_model("bert"), tiny_inputs("bert", LENGTHS)
    plain = tiny_model("bert")
    assert list(model.state_dict()) == list(plain.state_dict())
    want = run(model, inputs)
    assert torch.equal(run(copy.deepcopy(model), inputs), want)
    model.save_pretrained(tmp_path)
    loaded = hf.AutoModel.from_pretrained(tmp_path, attn_implementation="clustered")
    assert torch.equal(run(loaded, inputs), want)
    stock = hf.AutoModel.from_pretrained(tmp_path)
    assert torch.equal(run(stock, inputs), on_sdpa(model, inputs))
    plain.save_pretrained(tmp_path)
    config = hf.AutoConfig.from_pretrained(tmp_path)
    config.clustered = SETTINGS
    loaded = hf.AutoModel.from_pretrained(tmp_path, config=config, attn_implementation="clustered")
    assert torch.equal(run(loaded, inputs), want)


def test_heads_are_attached_to_a_model_on_clusters_and_it_comes_back_to_them():
    model, inputs = clustered_model("bert"), tiny_inputs("bert", LENGTHS)
    want = run(model, inputs)
    with pytest.warns(UserWarning, match="heads of BertModel, on clusters by name until now"):
        attach(model, tiny_config(heads=2))
    assert torch.equal(run(model, inputs), run(tiny_jump_model("bert", heads=2), inputs))
    assert torch.equal(run(detach(model), inputs), want)
    with pytest.warns(UserWarning, match="run on SDPA"):
        attach(model, JatConfig.clustered(**SETTINGS, heads=2))
    attach(detach(model), JatConfig.clustered(**SETTINGS))  # leaves no head behind


def test_dropout_is_drawn_in_training_alone():
    model = tiny_model("distilbert", dropout=0.0, attention_dropout=0.5)
    model.config.clustered = SETTINGS
    model.set_attn_implementation("clustered")
    inputs = tiny_inputs("distilbert", LENGTHS)
    want = run(model, inputs)
    model.train()
    outputs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        outputs.append(run(model, inputs))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    assert not torch.equal(outputs[0], want)


@pytest.mark.slow
def test_a_compiled_model_follows_its_settings():
    torch._dynamo.reset()
    model = tiny_model("bert", num_hidden_layers=1)
    model.set_attn_implementation("clustered")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    outputs = []
    for settings in ({}, SETTINGS, SETTINGS | {"keys": 4}, SETTINGS | {"propagate": False}):
        model.config.clustered = settings
        outputs.append(run(compiled, tiny_inputs("bert", LENGTHS)))
        assert torch.equal(outputs[-1], run(model, tiny_inputs("bert", LENGTHS)))
    assert not any(torch.equal(one, other) for one, other in pairwise(outputs))


def test_what_is_compiled_warns_too():
    torch._dynamo.reset()
    model = FAMILIES["t5"].build()
    model.set_attn_implementation(register_clustered(keys=5, size=1, segment=2, dense_below=0))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    inputs = tiny_inputs("roberta", LENGTHS)
    with pytest.warns(UserWarning, match="T5Attention runs on SDPA instead of clusters") as seen:
        got = run(compiled, inputs)
    assert len(seen) == 1
    model.set_attn_implementation("sdpa")
    assert_close(got, run(model, inputs), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_pairs_are_sdpas_where_a_compiled_model_hides_what_they_say():
    torch._dynamo.reset()
    model = clustered_model("bert")
    inputs = four(MASKS["a band"])
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with pytest.warns(UserWarning, match="its mask has more than padding and documents"):
        got = run(compiled, inputs)
    model.set_attn_implementation("sdpa")
    assert_close(got, run(model, inputs), rtol=0, atol=1e-5)


def test_sentence_transformers_take_the_name(minilm_path):
    sbert: Any = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is missing"
    )
    texts = ["The keys to the cabinet are on the table. " * 12, "A dog runs."]
    vectors = []
    for name in ("sdpa", register_clustered(keys=4, size=4, dense_below=0)):
        model = sbert.SentenceTransformer(
            minilm_path, device="cpu", model_kwargs={"attn_implementation": name}
        )
        vectors.append(model.encode(texts, convert_to_tensor=True))
    near = torch.nn.functional.cosine_similarity(*vectors, dim=-1)
    assert 0.9 < float(near[0]) < 1 - 1e-4
    assert_close(vectors[0][1], vectors[1][1], rtol=0, atol=1e-5)  # a short one
