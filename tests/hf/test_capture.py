"""What is recorded while a model runs."""

import pytest
import torch
from torch.testing import assert_close

from jat_graph import ClusterGraph, tree_graph
from jat_graph.hf import attach, capture_scores
from jat_graph.jumps.config import JatConfig
from tests.hf.models import (
    LENGTH,
    assert_joins,
    reference_rows,
    run,
    tiny_inputs,
    tiny_jump_model,
    tiny_model,
)


def test_heads_that_read_by_clusters_are_recorded_apart():
    model, inputs = tiny_jump_model("bert", layers=(0, 2), heads=(1, 3)), tiny_inputs("bert")
    config = JatConfig.clustered(
        keys=[[2, 3], [4, 5]], size=1, segment=2, layers=(1, 2), heads=(0, 2)
    )
    attach(model, config)
    with torch.no_grad(), capture_scores(model, ClusterGraph) as layers:
        model(**inputs)
    assert [(layer.layer, layer.heads) for layer in layers] == [(1, (0, 2)), (2, (0, 2))]
    with torch.no_grad(), capture_scores(model) as jumps:
        model(**inputs)
    assert [(layer.layer, layer.heads) for layer in jumps] == [(0, (1, 3)), (2, (1, 3))]
    for layer, keys in zip(layers, ((2, 3), (4, 5)), strict=True):
        graphs = tree_graph(layer.query, layer.key, config=layer.config, scale=layer.scale)
        for index, head in enumerate((0, 2)):
            own = layer.of_head(head)
            assert own.config.graph.keys == keys[index]
            assert torch.equal(own.query, layer.query[:, index : index + 1])
            (alone, *_) = tree_graph(own.query, own.key, config=own.config).to_data_list()
            assert torch.equal(alone["opened_by"].edge_index, graphs[index]["opened_by"].edge_index)


def test_recording_stops_at_the_end_and_is_detached():
    model, inputs = tiny_jump_model("bert"), tiny_inputs("bert")
    with capture_scores(model) as layers:
        model(**inputs)
    assert not any(layer.query.requires_grad or layer.key.requires_grad for layer in layers)
    model(**inputs)
    assert [len(layer.query) for layer in layers] == [3, 3, 3]
    with pytest.raises(RuntimeError), capture_scores(model):
        raise RuntimeError
    model(**inputs)


def test_a_mask_for_each_head_is_that_of_the_jump_heads():
    model, ids = tiny_jump_model("bert", heads=(1, 3)), tiny_inputs("bert")["input_ids"]
    each = torch.ones(3, 4, LENGTH, LENGTH, dtype=torch.bool).tril()
    each[:, 3] = True  # head 3 sees everything
    with capture_scores(model) as layers:
        run(model, {"input_ids": ids, "attention_mask": each})
    allowed = layers[0].mask.allowed(LENGTH, torch.device("cpu"))
    assert allowed is not None
    assert torch.equal(allowed.expand(3, 2, -1, -1), each[:, [1, 3]])


def test_calls_of_one_module_are_joined_along_the_batch():
    model = tiny_jump_model("albert")
    inputs = tiny_inputs("albert", (LENGTH, 7))
    (layer,) = assert_joins(model, inputs)
    assert layer.query.shape == (6, 2, LENGTH, 8)
    assert layer.mask.valid is not None
    assert layer.mask.valid.sum(-1).flatten().tolist() == [LENGTH, 7] * 3
    with torch.no_grad():
        rows = torch.cat(model(**inputs, output_attentions=True).attentions)[:, [0, 2]]
    valid = layer.mask.valid.unsqueeze(-1)
    assert_close((rows * valid).double(), reference_rows(layer) * valid, rtol=0, atol=2e-5)


def test_learned_strengths_are_recorded_as_they_are():
    model, inputs = attach(tiny_model("bert"), JatConfig.stones(heads=(1, 3))), tiny_inputs("bert")
    with capture_scores(model) as layers:
        run(model, inputs)
        run(model, inputs)
    strengths = [weight for name, weight in model.named_parameters() if name.endswith(".theta")]
    for number, (layer, theta) in enumerate(zip(layers, strengths, strict=True)):
        assert layer.strength is not None
        assert layer.strength.shape == (3, 1, 2)
        assert not layer.strength.any() and not layer.strength.requires_grad
        with torch.no_grad():
            theta.fill_(number + 1)
    with capture_scores(model) as again:
        run(model, inputs)
    assert [float(layer.strength.mean()) for layer in again] == [1, 2, 3]
    assert not any(layer.strength.any() for layer in layers)  # those of then


def test_excluded_tokens_of_all_forwards_are_recorded():
    inputs = tiny_inputs("bert")
    first = inputs["input_ids"][:, :1]
    config = JatConfig.stones(excluded_token_ids=tuple(first.unique().tolist()))
    model = attach(tiny_model("bert"), config)
    with capture_scores(model) as layers:
        run(model, inputs)
        run(model, inputs)
    wanted = torch.isin(inputs["input_ids"], first).repeat(2, 1)
    assert len(layers) == 3
    assert all(torch.equal(layer.mask.excluded.squeeze(1), wanted) for layer in layers)


def test_forwards_of_one_length_are_joined():
    model = tiny_jump_model("bert")
    with capture_scores(model) as layers:
        run(model, tiny_inputs("bert"))
        with capture_scores(model) as inner:
            run(model, tiny_inputs("bert", (LENGTH, 7)))
        run(model, tiny_inputs("bert", (LENGTH, 7)))
    assert [layer.query.size(0) for layer in inner] == [2, 2, 2]
    assert layers[0].mask.valid is not None
    assert layers[0].mask.valid.sum(-1).flatten().tolist() == [LENGTH] * 4 + [7]
    with capture_scores(model), pytest.raises(ValueError, match="12 and 11 tokens"):
        run(model, tiny_inputs("bert"))
        run(model, tiny_inputs("bert", (LENGTH - 1,)))
    with pytest.raises(ValueError, match="jump heads"), capture_scores(tiny_model("bert")):
        pass
