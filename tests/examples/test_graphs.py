"""Graph transformers on graphs that are drawn: recipes, layers, and runs of few steps."""

import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.nn import MixHopConv
from torch_geometric.utils import k_hop_subgraph

from examples import graph_transformers
from examples.sweeps import graphs
from examples.sweeps.definition import Run, read_sweep
from examples.sweeps.graphs import CHANNELS, LAYERS, READ, VARIANTS, Classifier, with_heads
from examples.tasks.graphs import TASKS, UNASKED, draw, mines
from jat_graph import JatConfig
from jat_graph.nn import JumpConv
from tests.examples.test_sweep import run_small, scores


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


@pytest.mark.slow
def test_a_sweep_chooses_a_rate_once_and_reads_what_was_learned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TASKS, "mines", TASKS["mines"]._replace(graphs=(1, 1, 1), layers=1))
    small = {"tasks": ["mines"], "options": {"steps": 2}}
    results, text = run_small("graphs", tmp_path, capsys, seeds=2, **small)
    assert [*{record.variant for record in results.records} ^ {*VARIANTS, READ}] == []
    assert all(0 <= own["test"]["right"] <= 1 for own in scores(results).values())
    assert all(own["test"]["reach"] >= 0 for own in scores(results).values())
    found = {(x.variant, x.seed): x.content for x in results.records}
    for name in (*VARIANTS, READ):
        assert found[name, 0]["tuning"] == found[name, 1]["tuning"]
    assert "jumps against multihead" in text and "±" in text


def test_times_are_measured_of_layers_with_attention(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "times.jsonl"
    monkeypatch.setattr(sys, "argv", ["times", "--output", str(file), "--times", "200"])
    graph_transformers.main()
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines == capsys.readouterr().out.splitlines() and len(lines) == 3 * len(VARIANTS[3:])
    assert all('"forward"' in line and '"step"' in line for line in lines)


@pytest.mark.slow
def test_a_ring_is_learned_where_every_layer_looks_everywhere(tmp_path: Path) -> None:
    sweep = read_sweep("graphs").model_copy(update={"options": {"steps": 60}})
    run = Run(sweep, "ring-10", sweep.base, 100, tmp_path)
    model, rings = graphs.train(run, 100, 4e-3)
    assert graphs.score(model, rings) == 1.0
