"""The example of edges that say much or little, on graphs of a few nodes."""

import re
import sys
from argparse import Namespace

import pytest
import torch
from scipy.stats import ttest_rel
from torch_geometric.utils import homophily as measured

from examples import homophily
from examples.homophily import ARMS, NodeClassifier, StoneMixHop, change, draw, spread

SMALL = Namespace(nodes=60, noise=3.0)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["homophily", *words])
    homophily.main()


def test_a_graph_has_the_homophily_that_is_asked_for_and_every_node_one_use() -> None:
    nodes = Namespace(nodes=1000, noise=3.0)
    for wanted in (0.2, 0.8):
        graph = draw(nodes, wanted, seed=0)
        assert measured(graph.edge_index, graph.y, method="edge") == pytest.approx(wanted, abs=0.03)
        assert graph.is_undirected() and graph.num_edges == pytest.approx(8000, rel=0.1)
        used = graph.train_mask.int() + graph.val_mask.int() + graph.test_mask.int()
        assert used.eq(1).all() and int(graph.train_mask.sum()) == 200


def test_a_seed_draws_the_same_graph_again_and_another_one_another() -> None:
    first, again, other = (draw(SMALL, 0.5, seed) for seed in (0, 0, 1))
    assert torch.equal(first.x, again.x) and torch.equal(first.edge_index, again.edge_index)
    assert torch.equal(first.test_mask, again.test_mask)
    assert not torch.equal(first.x, other.x) and first.num_edges != other.num_edges


@pytest.mark.parametrize("name", ARMS)
def test_only_arms_with_edges_read_them(name: str) -> None:
    graph = draw(SMALL, 0.5, seed=0)
    torch.manual_seed(0)
    model = NodeClassifier(ARMS[name].make).eval()
    whole = model(graph)
    assert whole.shape == (60, 5)
    graph.edge_index = graph.edge_index[:, :0]
    assert torch.equal(model(graph), whole) == (name == "no edges")


def test_stones_reach_beyond_the_edges() -> None:
    torch.manual_seed(0)
    layer, x = StoneMixHop().double(), torch.randn(30, 48, dtype=torch.float64)
    edges, moved = torch.tensor([[0], [1]]), x.clone()
    moved[20] += 1.0
    change = (layer(moved, edges) - layer(x, edges)).abs().amax(-1) > 1e-6
    near = (layer.near(moved, edges) - layer.near(x, edges)).abs().amax(-1) > 1e-6
    assert near.nonzero().flatten().tolist() == [20] and change.sum() > 5
    layer(x, edges).square().sum().backward()
    assert all(weight.grad.abs().max() > 0 for weight in layer.parameters())


def test_it_prints_a_table_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "--nodes", "60", "--epochs", "1", "--seeds", "2")
    head, *rows = capsys.readouterr().out.splitlines()
    assert re.split("  +", head)[1:] == [
        "homophily 0.2",
        "homophily 0.5",
        "homophily 0.8",
        "parameters",
    ]
    assert max(map(len, [head, *rows])) < 80
    shown = {re.split("  +", line)[0]: re.split("  +", line)[1:] for line in rows if line[0] != " "}
    assert list(shown) == list(ARMS)
    assert all(re.fullmatch(r"\d+\.\d ± \d+\.\d", c) for cells in shown.values() for c in cells[:3])
    assert [line.split()[1] for line in rows if line[0] == " "] == ["MixHopConv", "GPSConv"]
    count = sum(weight.numel() for weight in NodeClassifier(ARMS["GCNConv"].make).parameters())
    assert shown["GCNConv"][3] == str(count)


def test_where_edges_say_all_they_are_learned_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--nodes", "100", "--epochs", "30", "--seeds", "1", "--homophily", "1"]
    run(monkeypatch, *words)
    found = {line[:22].strip(): line[22:].split() for line in capsys.readouterr().out.splitlines()}
    assert float(found["GCNConv"][0]) > 80 > float(found["no edges"][0])
    assert "±" not in found["GCNConv"]


def test_changes_are_those_of_the_same_seeds() -> None:
    base, arm = [70.0, 72.0, 71.0], [71.0, 72.5, 73.0]
    low, high = ttest_rel(arm, base).confidence_interval(0.95)
    assert change(arm, base) == f"+1.2 ± {(high - low) / 2:.1f}"
    assert spread(base) == "71.0 ± 1.0"
    assert (change([71.0], [70.0]), spread([71.0])) == ("+1.0", "71.0")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0"], "seeds must be at least 1, got 0"),
        (["--epochs", "-1"], "epochs must be at least 1, got -1"),
        (["--nodes", "9"], "nodes must be at least 10, got 9"),
        (["--homophily", "0.5", "1.5"], r"homophily must be in \[0, 1\], got 1.5"),
        (["--learning-rate", "0"], "learning_rate must be above 0, got 0.0"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=f"^homophily: error: {message}$"):
        run(monkeypatch, *words)
