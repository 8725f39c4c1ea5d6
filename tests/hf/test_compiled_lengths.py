"""Compiled models at lengths and batches that change: few graphs, each equal to the model."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close
from transformers import PreTrainedModel

from jat_graph import JatConfig, PairGraph, attach
from jat_graph.hf import register_clustered
from tests.hf.models import PAD, VOCABULARY, run, strengthened, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
SHAPES = [(5, 1), (6, 2), (7, 3), (16, 4), (9, 1), (12, 2)]  # lengths and batches
HEADS = {
    "pairs": JatConfig(PairGraph(threshold=1.0), heads=2),
    "soft votes": JatConfig(PairGraph(threshold=1.0, soft_temperature=0.5), heads="all"),
    "standard scores": JatConfig(PairGraph(threshold=1.0, standardize=True), heads="all"),
    "votes on the fly": JatConfig(PairGraph(threshold=1.0, backend="threshold"), heads="all"),
    "every third key": JatConfig(PairGraph(key_selection="strided", key_step=3, threshold=1.0)),
    "vote rate": JatConfig(PairGraph(vote_rate=0.1), heads="all"),
    "significant keys": JatConfig(PairGraph(key_selection="significance", threshold=1.0)),
    "sampled keys": JatConfig(PairGraph(key_selection="sampled", threshold=1.0)),
    "stones": JatConfig.stones(strength=0.5),
    "learned, sampled stones": JatConfig.stones(key_selection="sampled"),
    "stones in a window": JatConfig.stones(strength=0.5, pattern="window:4"),
    "clusters": JatConfig.clustered(dense_below=0, keys=2, size=2, segment=2),
    "global tokens": JatConfig(pattern="window:4+global:1", hop_weights=(1,)),
}
GRAPHS = [
    *(("bert", heads) for heads in ("pairs", "clusters", "clusters by name")),
    ("llama", "stones in a window"),
    ("gpt2", "pairs"),
    ("modernbert", "clusters by name"),
]
OTHERS = [
    *(
        ("bert", heads)
        for heads in HEADS
        if heads != "standard scores" and ("bert", heads) not in GRAPHS
    ),
    *(("llama", heads) for heads in ("standard scores", "every third key")),
]
DEPTHS = {"gpt2": {"n_layer": 1}, "modernbert": {"num_hidden_layers": 2}}  # the second is local


@pytest.fixture(autouse=True)
def without_graphs_of_others() -> None:
    torch._dynamo.reset()


def inputs_of(length: int, batch: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(1, VOCABULARY, (batch, length))
    mask = torch.ones_like(ids)
    if batch > 1:
        mask[1, -2:] = 0
    return {"input_ids": ids.masked_fill(mask == 0, PAD), "attention_mask": mask}


def model_with(name: str, heads: str) -> PreTrainedModel:
    depth = DEPTHS.get(name, {"num_hidden_layers": 1})
    if heads == "clusters by name":
        model = tiny_model(name, **depth)
        model.set_attn_implementation(register_clustered(dense_below=0, keys=2, size=2, segment=2))
        return model
    return strengthened(attach(tiny_model(name, **depth), HEADS[heads]))


def assert_shapes_agree(compiled, model, shapes):
    for shape in shapes:
        inputs = inputs_of(*shape)
        valid = inputs["attention_mask"].bool()
        got, want = (run(some, inputs)[valid] for some in (compiled, model))
        assert_close(got, want, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "heads"), GRAPHS)
def test_lengths_and_batches_share_three_graphs(name, heads):
    model, counter = model_with(name, heads), CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    assert_shapes_agree(compiled, model, SHAPES)
    if name in ("bert", "llama"):
        assert counter.frame_count <= 3  # as of the model without these heads: one for one sequence


@pytest.mark.slow
@pytest.mark.parametrize(("name", "heads"), OTHERS)
def test_one_graph_is_for_all_lengths_and_batches(name, heads):
    model, counter = model_with(name, heads), CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=True)
    assert_shapes_agree(compiled, model, [(6, 2), (7, 3), (16, 4)])
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects:UserWarning")
@pytest.mark.parametrize(
    ("name", "heads"),
    [
        ("bert", "clusters"),
        *((name, "clusters by name") for name in ("bert", "modernbert")),
        ("bert", "stones"),
        ("llama", "pairs"),
    ],
)
def test_an_exported_model_takes_any_length(name, heads):
    model, inputs = model_with(name, heads), inputs_of(20, 2)
    length = torch.export.Dim("length", min=8, max=60)
    shapes = {key: {1: length} for key in inputs}
    more = {"use_cache": False} if name == "llama" else {}
    given = inputs | more
    shapes |= dict.fromkeys(more)
    strict = heads != "clusters by name"
    made = torch.export.export(model, (), given, dynamic_shapes=shapes, strict=strict)
    exported = made.module()
    for size in (8, 13, 60):
        inputs = inputs_of(size, 2)
        valid = inputs["attention_mask"].bool()
        got, want = (run(some, inputs | more)[valid] for some in (exported, model))
        assert_close(got, want, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_compiled_decoder_refuses_a_mask_that_is_not_causal():
    model = model_with("llama", "stones")
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    band = torch.ones(1, 1, 9, 9, dtype=torch.bool).triu(-2).tril()
    with pytest.raises(RuntimeError, match="must be causal order and padding"):
        compiled(input_ids=torch.ones(1, 9, dtype=torch.long), attention_mask=band, use_cache=False)
