"""Graph transformers on graphs that are drawn: recipes, layers, and runs of few steps."""

import json
import sys
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from torch_geometric.nn import MixHopConv
from torch_geometric.utils import k_hop_subgraph

from examples import graph_transformers
from examples.graph_transformers import CHANNELS, LAYERS, READ, VARIANTS, Classifier, with_heads
from examples.tasks.graphs import TASKS, UNASKED, draw, mines
from jat_graph import JatConfig
from jat_graph.nn import JumpConv


def test_graphs_are_those_of_their_recipes() -> None:
    torch.manual_seed(0)
    (field,) = mines(1)
    square, unknown = field.y.view(24, 24).float(), field.x[:, 9] == 1
    around = torch.nn.functional.avg_pool2d(square[None], 3, 1, 1, divisor_override=1)[0] - square
    assert field.x[~unknown, :9].argmax(1).tolist() == around.flatten()[~unknown].tolist()
    assert 0.4 < unknown.float().mean() < 0.6 and not field.x[unknown, :9].any()
    for ring in draw("ring-10", 0)[2][:9]:
        near = {int(x) for x in k_hop_subgraph(0, 4, ring.edge_index)[0]}
        assert {*range(10)} - near == {5} and ring.x[5].argmax() == ring.y[0]
    for tree in draw("tree-3", 0)[2][:9]:
        below, above = tree.edge_index
        assert above.bincount().eq(2).all() and below.unique().numel() == 14
        leaf = 7 + int(tree.x[7:, :8].argmax(1).eq(tree.x[0].argmax()).nonzero())
        assert tree.x[leaf, 8:].argmax() == tree.y[0] and (tree.y[1:] == UNASKED).all()
    parts = draw("communities", 0)
    assert sum((graph.y != UNASKED).int() for (graph,) in parts).eq(1).all()
    draw.cache_clear()
    assert torch.equal(draw("communities", 0)[0][0].x, parts[0][0].x)
    assert not torch.equal(draw("communities", 1)[0][0].x, parts[0][0].x)


def test_heads_without_jumps_are_those_of_pyg_and_mixhop_is_jumpconv() -> None:
    torch.manual_seed(0)
    x, edges, batch = torch.randn(30, CHANNELS), torch.randint(30, (2, 80)), torch.arange(30) // 15
    edges = edges[:, (edges[0] // 15 == edges[1] // 15) & (edges[0] != edges[1])]
    layer = LAYERS["multihead"](0.0)
    for config in (JatConfig(hop_weights=(1.0,), heads=2), JatConfig.clustered(keys=32)):
        ours = with_heads(layer, config)
        torch.testing.assert_close(ours(x, edges, batch), layer(x, edges, batch))
    mixhop, jumps = MixHopConv(CHANNELS, 4, [0, 1, 2]), JumpConv(CHANNELS, 4, powers=(0, 1, 2))
    jumps.load_state_dict(mixhop.state_dict())
    torch.testing.assert_close(jumps(x, edges), mixhop(x, edges))


@pytest.mark.parametrize("name", VARIANTS)
def test_attention_alone_reaches_beyond_the_edges_and_never_another_graph(name: str) -> None:
    torch.manual_seed(0)
    model = Classifier(name, "mines", 6, 3).eval()
    x, batch = torch.randn(60, 6, requires_grad=True), torch.arange(60) // 30
    edges = torch.stack([torch.arange(59), torch.arange(1, 60)])[:, torch.arange(59) != 29]
    (grad,) = torch.autograd.grad(model(x, edges, batch)[5].sum(), x)
    seen = grad.any(1)
    assert seen[0] == (name not in ("GCN", "GAT", "GIN")) and seen[3:6].all()
    assert seen[6:30].any() == (VARIANTS.index(name) > 3) and not seen[30:].any()


def test_runs_go_on_where_they_were(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, picture = tmp_path / "runs.jsonl", tmp_path / "runs.png"
    monkeypatch.setitem(TASKS, "mines", TASKS["mines"]._replace(graphs=(1, 1, 1), layers=1))

    def run(*words: str) -> str:
        given = ["--output", str(file), "--tasks", "mines", "--steps", "2", *words]
        monkeypatch.setattr(sys, "argv", ["graph_transformers", *given])
        graph_transformers.main()
        return capsys.readouterr().out

    run("--seeds", "1", "--variants", "GIN")
    first = file.read_text()
    table = run("--seeds", "2", "--plot", str(picture))
    rows = [*map(json.loads, file.read_text().splitlines())]
    assert file.read_text().startswith(first) and len(rows) == 4 * len(VARIANTS) + 2
    assert {row["variant"] for row in rows} == {*VARIANTS, READ}
    assert all(0 <= row["test"] <= 1 for row in rows) and imread(picture).std() > 0.05
    assert "jumps less multihead, mines: p = " in table
    assert "±" in run("--seeds", "2") and len(file.read_text().splitlines()) == len(rows)
    with pytest.raises(SystemExit, match=f"tasks must be of {', '.join(TASKS)}, got mines, x$"):
        run("--tasks", "mines", "x")
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
