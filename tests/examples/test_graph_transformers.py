"""Graph transformers on graphs that are drawn: recipes, layers, and runs of few steps."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from torch_geometric.nn import GPSConv, MixHopConv
from torch_geometric.utils import k_hop_subgraph

from examples import graph_transformers
from examples.graph_transformers import CHANNELS, LAYERS, READ, VARIANTS, Classifier, with_heads
from examples.tasks.graphs import LARGE, TASKS, UNASKED, draw
from jat_graph import JatConfig
from jat_graph.nn import JumpConv


def test_graphs_are_those_of_their_recipes() -> None:
    field = draw("mines", 0)[0][0]
    known, unknown, around = field.x[:, :9].bool(), field.x[:, 9], torch.zeros(24, 24)
    padded = torch.nn.functional.pad(field.y.view(24, 24), (1, 1, 1, 1))
    for row in range(3):
        for column in range(3):
            around += padded[row : row + 24, column : column + 24]
    counts = (around - field.y.view(24, 24)).flatten().long()
    assert torch.equal(known.nonzero()[:, 1], counts[unknown == 0])
    assert 0.4 < unknown.mean() < 0.6 and not known[unknown == 1].any()
    for ring in draw("ring-10", 0)[2][:9]:
        near = {int(x) for x in k_hop_subgraph(0, 4, ring.edge_index)[0]}
        assert len(near) == 9 and {*range(10)} - near == {5}
        assert ring.x[5].argmax() == ring.y[0] and (ring.y[1:] == UNASKED).all()
    for tree in draw("tree-3", 0)[2][:9]:
        key, (above, below) = tree.x[0].argmax(), tree.edge_index.flip(0)
        assert above.bincount().eq(2).all() and below.unique().numel() == 14
        leaf = 7 + int(tree.x[7:, :8].argmax(1).eq(key).nonzero())
        assert tree.x[leaf, 8:].argmax() == tree.y[0] and (tree.y[1:] == UNASKED).all()


@pytest.mark.parametrize("task", LARGE)
def test_no_node_is_asked_for_in_two_splits_and_seeds_decide(task: str) -> None:
    splits, other = draw(task, 0), draw(task, 1)
    asked = [{id(g.edge_index): g.y != UNASKED for g in own} for own in splits]
    for one, two in pairwise([*asked, asked[0]]):
        assert not any((one[key] & two[key]).any() for key in {*one} & {*two})
    draw.cache_clear()
    again = draw(task, 0)[0][0]
    assert torch.equal(again.x, splits[0][0].x) and not torch.equal(again.y, other[0][0].y)


def test_heads_without_jumps_are_those_of_pyg_and_mixhop_is_jumpconv() -> None:
    torch.manual_seed(0)
    x, edges, batch = torch.randn(30, CHANNELS), torch.randint(30, (2, 80)), torch.arange(30) // 15
    edges = edges[:, edges[0] // 15 == edges[1] // 15]
    layer = LAYERS["multihead"](0.0)
    for config in (JatConfig(hop_weights=(1.0,), heads=2), JatConfig.clustered(keys=30, block=0)):
        torch.testing.assert_close(
            with_heads(layer, config)(x, edges, batch), layer(x, edges, batch)
        )
    mixhop, ours = MixHopConv(CHANNELS, 4, [0, 1, 2]), JumpConv(CHANNELS, 4, powers=(0, 1, 2))
    ours.load_state_dict(mixhop.state_dict())
    simple = edges[:, edges[0] != edges[1]].unique(dim=1)
    torch.testing.assert_close(ours(x, simple), mixhop(x, simple))


@pytest.mark.parametrize("name", VARIANTS)
def test_attention_alone_reaches_beyond_the_edges_and_never_another_graph(name: str) -> None:
    torch.manual_seed(0)
    model = Classifier(name, "mines", 6, 3).double().eval()
    assert all(isinstance(layer, GPSConv) for layer in model.layers)
    x, batch = torch.randn(60, 6, dtype=torch.float64, requires_grad=True), torch.arange(60) // 30
    edges = torch.stack([torch.arange(59), torch.arange(1, 60)])[:, torch.arange(59) != 29]
    (grad,) = torch.autograd.grad(model(x, edges, batch)[5].sum(), x)
    seen = grad.abs().sum(1) > 1e-12
    assert seen[0] == (name not in ("GCN", "GAT", "GIN")) and seen[3:6].all()
    assert seen[6:30].any() == (VARIANTS.index(name) > 3) and not seen[30:].any()


def test_runs_go_on_where_they_were(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, picture = tmp_path / "runs.jsonl", tmp_path / "runs.png"
    own = TASKS["mines"]._replace(graphs=(1, 1, 1), layers=1)
    monkeypatch.setitem(TASKS, "mines", own)

    def run(*words: str) -> str:
        given = ["--output", str(file), "--tasks", "mines", "--steps", "2", *words]
        monkeypatch.setattr(sys, "argv", ["graph_transformers", *given])
        graph_transformers.main()
        return capsys.readouterr().out

    run("--seeds", "1", "--variants", "GIN")
    lines = file.read_text().splitlines()
    assert len(lines) == 3 and "influence" in lines[2]
    table = run("--seeds", "2", "--plot", str(picture))
    rows = [*map(json.loads, file.read_text().splitlines())]
    assert file.read_text().splitlines()[:3] == lines and len(rows) == 4 * len(VARIANTS) + 2
    assert {row["variant"] for row in rows} == {*VARIANTS, READ}
    assert all(0 <= row["test"] <= 1 for row in rows) and imread(picture).std() > 0.05
    assert "jumps less multihead, mines: p = " in table and "±" in run("--seeds", "2")
    assert len(file.read_text().splitlines()) == len(rows)
    for words, wrong in (
        (["--tasks", "x"], "tasks must be"),
        (["--variants", "y"], "variants must"),
    ):
        with pytest.raises(SystemExit, match=wrong):
            run(*words)
    file.write_text('{"seed": 0}\n')
    with pytest.raises(SystemExit, match="must have the layout of runs of graph_transformers"):
        run()
    file.unlink()
    assert "forward" in run("--times", "200")
    assert {json.loads(line)["variant"] for line in file.read_text().splitlines()} == {
        *VARIANTS[3:]
    }


def test_a_ring_is_learned_where_every_layer_looks_everywhere() -> None:
    assert graph_transformers.run("multihead", "ring-10", 100, 4e-3, 60)[0]["test"] == 1.0
