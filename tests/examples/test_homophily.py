"""The example of edges that say much or little, on graphs of a few nodes."""

from pathlib import Path

import pytest
import torch
from torch_geometric.utils import homophily as measured

from examples.sweeps.homophily import VARIANTS, NodeClassifier, StoneMixHop, draw
from tests.examples.test_sweep import run_small, scores


def test_a_graph_has_the_homophily_that_is_asked_for() -> None:
    for wanted in (0.2, 0.8):
        graph, again = draw(1000, wanted, seed=0), draw(1000, wanted, seed=0)
        assert measured(graph.edge_index, graph.y, method="edge") == pytest.approx(wanted, abs=0.03)
        used = graph.train_mask.int() + graph.val_mask.int() + graph.test_mask.int()
        assert used.eq(1).all() and int(graph.train_mask.sum()) == 200
        assert torch.equal(graph.x, again.x) and torch.equal(graph.edge_index, again.edge_index)


@pytest.mark.parametrize("name", VARIANTS)
def test_only_variants_with_edges_read_them(name: str) -> None:
    graph = draw(60, 0.5, seed=0)
    torch.manual_seed(0)
    model = NodeClassifier(VARIANTS[name]).eval()
    whole = model(graph)
    graph.edge_index = graph.edge_index[:, :0]
    assert torch.equal(model(graph), whole) == (name == "no edges")


def test_stones_reach_beyond_the_edges() -> None:
    torch.manual_seed(0)
    layer, x = StoneMixHop().double(), torch.randn(30, 48, dtype=torch.float64)
    edges, moved = torch.tensor([[0], [1]]), x.clone()
    moved[20] += 1.0
    near = (layer.near(moved, edges) - layer.near(x, edges)).abs().amax(-1) > 1e-6
    far = (layer(moved, edges) - layer(x, edges)).abs().amax(-1) > 1e-6
    assert near.nonzero().flatten().tolist() == [20] and far.sum() > 5


@pytest.mark.slow
def test_where_edges_say_all_they_are_learned_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"tasks": ["homophily 1"], "seeds": 1, "options": {"nodes": 100, "epochs": 30}}
    results, text = run_small("homophily", tmp_path, capsys, **small)
    found = {variant: own["test"]["right"] for (_, variant, _), own in scores(results).items()}
    assert found["GCNConv"] > 0.8 > found["no edges"] and {*found} == {*VARIANTS}
    assert "MixHop and stones against MixHopConv" in text
