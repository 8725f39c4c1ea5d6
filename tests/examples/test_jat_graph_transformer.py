"""The graph transformer: a GPS layer but for its jumps, and trees read as graphs."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch
from torch_geometric.nn import GINConv, GPSConv
from torch_geometric.utils import degree

from examples import jat_graph_transformer
from examples.jat_graph_transformer import JUMPS, LAYER, ORDINARY, read_trees, to_graph
from jat_graph import JatConfig
from jat_graph.probes import Sentence
from models.jat_graph_transformer import GraphTransformer, JumpGPSConv, feed_forward
from tests.examples.conftest import Call
from tests.probes.test_treebank import DOGS, YES

CHANNELS, HEADS = 16, 4
SENTENCE = f"{DOGS[:-1]}5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t_\t_\n\n# text = Yes\n{YES}"
TREE = Sentence(
    ("Dogs", "do", "n't", "bark", "."),
    ("NOUN", "AUX", "PART", "VERB", "PUNCT"),
    (3, 3, 3, -1, 3),
    ("nsubj", "aux", "advmod", "root", "punct"),
)
NAMES = sorted(TREE.tags), sorted(TREE.relations)


def write_trees(folder: Path, times: int) -> None:
    for split in ("train", "dev"):
        path = folder / f"en_ewt-ud-{split}.conllu.gz"
        path.write_bytes(gzip.compress((SENTENCE * times).encode()))


def two_graphs() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(9, CHANNELS, dtype=torch.float64)
    edges = torch.tensor([[0, 1, 1, 2, 4, 5, 5, 6, 7, 8], [1, 0, 2, 1, 5, 4, 6, 5, 8, 7]])
    return x, edges, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1])


def test_without_jumps_it_is_gpsconv() -> None:
    ours = JumpGPSConv(CHANNELS, HEADS, ORDINARY).double()
    theirs = GPSConv(CHANNELS, GINConv(feed_forward(CHANNELS, CHANNELS)), heads=HEADS).double()
    theirs.conv.load_state_dict(ours.local.state_dict())
    attention = ours.attention
    with torch.no_grad():
        for kind in ("weight", "bias"):
            parts = [getattr(lin, kind) for lin in (attention.q, attention.k, attention.v)]
            getattr(theirs.attn, f"in_proj_{kind}").copy_(torch.cat(parts))
            getattr(theirs.attn.out_proj, kind).copy_(getattr(attention.attn_out, kind))
            for own, other in ((0, 0), (3, 3)):
                wanted = getattr(ours.feed_forward[own], kind)
                getattr(theirs.mlp[other], kind).copy_(wanted)
    inputs = two_graphs()
    torch.testing.assert_close(ours(*inputs), theirs(*inputs), rtol=0, atol=1e-10)


@pytest.mark.parametrize("config", [JUMPS, LAYER], ids=["jumps", "layer"])
def test_heads_change_it_and_keep_graphs_apart(config: JatConfig) -> None:
    inputs = x, edge_index, batch = two_graphs()
    layer = JumpGPSConv(CHANNELS, HEADS, config).double().eval()
    plain = JumpGPSConv(CHANNELS, HEADS, ORDINARY).double().eval()
    plain.load_state_dict(layer.state_dict(), strict=False)
    if config == LAYER:  # it begins at nothing
        assert torch.equal(layer(*inputs), plain(*inputs))
        torch.nn.init.constant_(layer.attention.strength.theta, 0.5)
    out = layer(*inputs)
    assert (out - plain(*inputs)).abs().max() > 1e-4
    first = layer(x[:4], edge_index[:, :4], batch[:4])
    torch.testing.assert_close(out[:4], first, rtol=0, atol=1e-10)


def test_trees_are_words_with_their_heads(tmp_path: Path) -> None:
    write_trees(tmp_path, 1)
    one = Sentence(("Yes",), ("INTJ",), (-1,), ("root",))
    assert read_trees(tmp_path, "dev") == [TREE, one]  # no "2-3", no "4.1", no ":outer"


def test_a_graph_hides_order_and_heads() -> None:
    graph = to_graph(TREE, *NAMES)
    assert graph.is_undirected()
    assert degree(graph.edge_index[0]).tolist() == [1, 1, 1, 4, 1]
    assert tuple(NAMES[1][number] for number in graph.y) == TREE.relations
    order = [3, 1, 0, 4, 2]  # the same tree, its words in another order
    heads = tuple(-1 if TREE.heads[i] < 0 else order.index(TREE.heads[i]) for i in order)
    tags, relations = (tuple(names[i] for i in order) for names in (TREE.tags, TREE.relations))
    moved = to_graph(replace(TREE, tags=tags, heads=heads, relations=relations), *NAMES)
    torch.manual_seed(0)
    model = GraphTransformer(5, 8, 5, CHANNELS, 2, lambda c: JumpGPSConv(c, HEADS, JUMPS)).eval()
    out, other = (
        model(b.kind, b.walk, b.edge_index, b.batch)
        for b in (Batch.from_data_list([g]) for g in (graph, moved))
    )
    torch.testing.assert_close(out[order], other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_it_learns_and_says_how_well(
    tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trees(tmp_path, 64)
    call(jat_graph_transformer, "--data-dir", tmp_path, "--epochs", 10, "--seeds", 1)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(jat_graph_transformer.LAYERS_BY_NAME)
    assert all(": 100.00% right (100.00% to 100.00%, 1 seeds), " in line for line in lines)
