"""Structure of graphs against networkx and dense matrices."""

import networkx as nx
import pytest
import torch

from jat_graph import JatConfig, PairGraph, attach
from jat_graph.inspection import GraphStructure, graph_statistics
from tests.hf.models import tiny_model
from tests.inspection.support import random_batches, tiny_bert
from tests.support import captured_layers, layer_weights

CONFIGS = {
    "many": JatConfig(PairGraph(threshold=1.0), heads=(1, 3), layers=(1, 2)),
    "few": JatConfig(PairGraph(threshold=8.0), heads=(1, 3), layers=(1, 2)),
    "stones": JatConfig.stones(heads=(1, 3), layers=(1, 2), threshold=0.5),
}


def gaps(adjacency):
    """The second smallest eigenvalues of I − Â, of dense matrices [..., n, n]."""
    looped = adjacency + torch.eye(adjacency.size(-1), dtype=adjacency.dtype)
    scale = looped.sum(-1).rsqrt()
    values = torch.linalg.eigvalsh(scale[..., :, None] * looped * scale[..., None, :])
    return 1 - values[..., -2]


def by_networkx(weights):
    """Measure one graph [n, n] the slow way."""
    undirected = (weights + weights.T) / 2
    graph = nx.from_numpy_array(undirected.numpy())
    degree = sum(degree for _, degree in graph.degree()) / len(graph)
    components = nx.number_connected_components(graph)
    return degree, nx.average_clustering(graph), components, float(gaps(undirected.double()))


@pytest.mark.parametrize("name", CONFIGS)
def test_structure_is_that_of_networkx_over_the_tokens_of_all_sequences(name):
    model, batches = tiny_bert(), random_batches(2)
    attach(model, CONFIGS[name])
    statistics = graph_statistics(model, batches, structure=True)
    assert [(found.layer, found.head) for found in statistics] == [(1, 1), (1, 3), (2, 1), (2, 3)]
    rows = {(found.layer, found.head): [] for found in statistics}
    for batch in batches:
        for layer in captured_layers(model, batch):
            every = layer_weights(layer)
            for place, head in enumerate(layer.heads):
                for row, own in enumerate(batch["attention_mask"].bool()):
                    weights = every[row, place][own][:, own]
                    rows[layer.layer, head].append(by_networkx(weights))
    for found in statistics:
        values = torch.tensor(rows[found.layer, found.head], dtype=torch.float64)
        assert len(values) == 6
        structure = found.structure
        got = (structure.degree, structure.clustering, structure.components, structure.gap)
        assert got == pytest.approx(values.mean(0).tolist(), abs=1e-5)
        assert 1 < structure.degree <= 8 and 0.4 < structure.clustering <= 1
    apart = [found.structure.components > 1 for found in statistics]
    assert all(apart) if name == "few" else any(apart) and not all(apart)


@pytest.mark.parametrize(
    "config", [JatConfig(PairGraph(threshold=0.5)), JatConfig.stones(threshold=0.5)]
)
def test_a_causal_graph_is_measured_without_its_direction(config):
    model = attach(tiny_model("gpt2").double(), config)
    inputs = {"input_ids": 1 + 3 * torch.arange(11)[None]}
    weights = [w for layer in captured_layers(model, inputs) for w in layer_weights(layer)[0]]
    for own, found in zip(weights, graph_statistics(model, [inputs], structure=True), strict=True):
        assert own.count_nonzero() > 4 and own.triu(1).count_nonzero() == 0
        got = vars(found.structure).values()
        assert list(got) == pytest.approx(by_networkx(own), abs=1e-8)


def test_sequences_without_a_token_do_not_count():
    model, (batch,) = tiny_bert(), random_batches(1)
    attach(model, CONFIGS["many"])
    wanted = graph_statistics(model, [batch], structure=True)
    empty = {name: torch.cat([rows, torch.zeros_like(rows[:1])]) for name, rows in batch.items()}
    for one, two in zip(wanted, graph_statistics(model, [empty], structure=True), strict=True):
        assert vars(one.structure) == pytest.approx(vars(two.structure), abs=1e-5)
    assert isinstance(wanted[0].structure, GraphStructure)
