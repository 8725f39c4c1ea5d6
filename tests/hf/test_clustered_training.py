"""Attention by clusters in what people run models with: training, compilers, PEFT, pipelines."""

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

from jat_graph.hf import register_clustered
from tests.hf.encoders import FAMILIES, LENGTHS, SETTINGS, clustered_model
from tests.hf.models import LENGTH, main_output, run, tiny_inputs, tiny_model
from tests.hf.test_interface_training import autocast_error, gradients, weighted


@pytest.fixture
def counter() -> Iterator[CompileCounterWithBackend]:
    """Count the graphs that the compiler makes, and forget them afterwards."""
    torch._dynamo.reset()
    yield CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["bert", "modernbert", "electra"])
def test_gradient_checkpointing_changes_no_gradient(name: str, reentrant: bool) -> None:
    model, inputs = clustered_model(name).train(), tiny_inputs(name, LENGTHS)
    wanted = gradients(model, inputs)
    on_sdpa = copy.deepcopy(model)
    on_sdpa.set_attn_implementation("sdpa")
    stock = gradients(on_sdpa, inputs)
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    got = gradients(model, inputs)
    for parameter, grad in wanted.items():
        assert torch.equal(got[parameter], grad), parameter
    assert any(not torch.allclose(stock[key], grad, rtol=1e-2) for key, grad in wanted.items())


def test_dropout_is_drawn_in_training_alone() -> None:
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


@pytest.mark.parametrize("name", ["bert", "modernbert", "vit"])
def test_autocast_errs_no_more_than_sdpa_does(name: str) -> None:
    model, inputs = clustered_model(name, keys=4), tiny_inputs(name, LENGTHS)
    got = autocast_error(model, inputs)
    model.set_attn_implementation("sdpa")
    assert 0 < got <= 3 * autocast_error(model, inputs) + 1e-2


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_a_compiled_model_of_any_length_is_few_graphs(
    name: str, counter: CompileCounterWithBackend
) -> None:
    model = tiny_model(name, num_hidden_layers=2)
    model.config.clustered = SETTINGS
    model.set_attn_implementation("clustered")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for lengths in ((12, 7), (13, 9), (20, 11), (33, 8), (17, 5)):
        inputs = tiny_inputs(name, lengths)
        assert torch.equal(run(compiled, inputs), run(model, inputs))
    assert counter.frame_count <= 2  # of the first length, and of all others
    wanted = gradients(model, inputs)
    model.zero_grad()
    weighted(main_output(compiled(**inputs))).backward()
    for parameter, grad in wanted.items():
        assert_close(model.get_parameter(parameter).grad, grad, rtol=1e-4, atol=1e-6)


def test_a_compiled_model_follows_its_settings(counter: CompileCounterWithBackend) -> None:
    model = tiny_model("bert", num_hidden_layers=1)
    model.set_attn_implementation("clustered")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    outputs = []
    for settings in ({}, SETTINGS, SETTINGS | {"keys": 4}, SETTINGS | {"propagate": False}):
        model.config.clustered = settings
        outputs.append(run(compiled, tiny_inputs("bert", LENGTHS)))
        assert torch.equal(outputs[-1], run(model, tiny_inputs("bert", LENGTHS)))
    assert not any(torch.equal(one, other) for one, other in pairwise(outputs))


def test_what_is_compiled_warns_too(counter: CompileCounterWithBackend) -> None:
    model = FAMILIES["t5"].build()
    model.set_attn_implementation(register_clustered(keys=5, size=1, segment=2, dense_below=0))
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    inputs = tiny_inputs("roberta", LENGTHS)
    with pytest.warns(UserWarning, match="T5Attention runs on SDPA instead of clusters") as seen:
        got = run(compiled, inputs)
    assert len(seen) == 1
    model.set_attn_implementation("sdpa")
    assert_close(got, run(model, inputs), rtol=0, atol=1e-5)


def test_pairs_are_sdpas_where_a_compiled_model_hides_what_they_say(
    counter: CompileCounterWithBackend,
) -> None:
    model = clustered_model("bert")
    band = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs() <= 3
    inputs = tiny_inputs("bert") | {"attention_mask": band.expand(3, 1, -1, -1).clone()}
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    with pytest.warns(UserWarning, match="its mask has more than padding and documents"):
        got = run(compiled, inputs)
    model.set_attn_implementation("sdpa")
    assert_close(got, run(model, inputs), rtol=0, atol=1e-5)


def test_sentence_transformers_take_the_name(minilm_path: str) -> None:
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
