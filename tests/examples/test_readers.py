"""Readers of a frozen model's attention, on sentences of three words and on some of CoLA."""

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from examples.sweeps.readers import READERS, Reader, dealt_edges, nearby_words, without_edges
from tests.examples.test_sweep import run_small, scores
from tests.examples.test_trees import write_trees

ROWS = [("Dogs bark.", 1), ("Dogs the bark.", 0), ("He wrote a book.", 1), ("He the wrote.", 0)]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["ewtrelations", "cola"])
def test_all_readers_learn_a_few_sentences_by_heart(
    task: str, minilm_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trees(tmp_path, 16)
    lines = "".join(f"gj04\t{label}\t\t{sentence}\n" for sentence, label in ROWS * 8)
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    given = {"model": minilm_path, "data_dir": tmp_path, "tasks": [task], "question": None}
    options = {"num_train_epochs": 40, "learning_rate": 5e-3}
    given |= {"seeds": 1, "options": options, "task_options": {}}
    results, _ = run_small("readers", tmp_path / "out", capsys, **given)
    assert [record.variant for record in results.records] == [*READERS]
    assert {x for own in scores(results).values() for x in own["validation"].values()} == {1.0}


def test_the_gnn_reads_edges_and_is_a_reader_of_states_without_them() -> None:
    torch.manual_seed(0)
    edges = {"edge_index": torch.tensor([[0, 1], [1, 2]]), "edge_attr": torch.rand(2, 5)}
    graph = Data(x=torch.randn(3, 8), **edges)
    gnn = Reader("GATv2", 8, 5, 4, of_words=True).eval()
    whole, alone = gnn(graph), gnn(without_edges(graph.clone()))
    torch.testing.assert_close(whole[0], alone[0])  # nothing leads to it
    assert (whole[1:] - alone[1:]).abs().amin(-1).min() > 1e-6


def test_dealt_edges_and_nearby_words() -> None:
    graph = Data(edge_index=torch.randint(9, (2, 40)), edge_attr=torch.rand(40, 5), num_nodes=9)
    dealt = dealt_edges(graph.clone())
    for row in (0, 1):
        assert torch.equal(dealt.edge_index[row].bincount(), graph.edge_index[row].bincount())
    assert not torch.equal(dealt.edge_index, graph.edge_index)
    near = nearby_words(Data(x=torch.randn(4, 8), edge_index=torch.tensor([[0], [3]])))
    steps = near.edge_index[0] - near.edge_index[1]
    assert near.num_edges == 10 and set(steps.tolist()) == {-2, -1, 1, 2}
    assert torch.equal(near.edge_attr.argmax(-1), steps + 2)
