"""The example of edges that say much or little, on graphs of a few nodes."""

import sys
from argparse import Namespace

import pytest
import torch
from scipy.stats import ttest_rel
from torch_geometric.utils import homophily as measured

from examples import homophily
from examples.homophily import VARIANTS, NodeClassifier, StoneMixHop, change, draw


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["homophily", *words])
    homophily.main()


def test_a_graph_has_the_homophily_that_is_asked_for() -> None:
    nodes = Namespace(nodes=1000, noise=3.0)
    for wanted in (0.2, 0.8):
        graph, again = draw(nodes, wanted, seed=0), draw(nodes, wanted, seed=0)
        assert measured(graph.edge_index, graph.y, method="edge") == pytest.approx(wanted, abs=0.03)
        used = graph.train_mask.int() + graph.val_mask.int() + graph.test_mask.int()
        assert used.eq(1).all() and int(graph.train_mask.sum()) == 200
        assert torch.equal(graph.x, again.x) and torch.equal(graph.edge_index, again.edge_index)


@pytest.mark.parametrize("name", VARIANTS)
def test_only_variants_with_edges_read_them(name: str) -> None:
    graph = draw(Namespace(nodes=60, noise=3.0), 0.5, seed=0)
    torch.manual_seed(0)
    model = NodeClassifier(VARIANTS[name].make).eval()
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


def test_where_edges_say_all_they_are_learned_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--nodes", "100", "--epochs", "30", "--seeds", "1", "--homophily", "1"]
    run(monkeypatch, *words)
    found = {line[:22].strip(): line[22:].split() for line in capsys.readouterr().out.splitlines()}
    assert float(found["GCNConv"][0]) > 80 > float(found["no edges"][0])
    assert set(VARIANTS) <= set(found)


def test_changes_are_those_of_the_same_seeds() -> None:
    low, high = ttest_rel([71.0, 72.5, 73.0], [70.0, 72.0, 71.0]).confidence_interval(0.95)
    assert change([71.0, 72.5, 73.0], [70.0, 72.0, 71.0]) == f"+1.2 ± {(high - low) / 2:.1f}"
    assert change([71.0], [70.0]) == "+1.0"


@pytest.mark.parametrize("words", [["--seeds", "0"], ["--nodes", "9"], ["--homophily", "1.5"]])
def test_bad_input_is_one_line(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=f"^homophily: error: {words[0][2:]} must be .*, got"):
        run(monkeypatch, *words)
