"""Readers of a frozen model's attention, on sentences of three words and on some of CoLA."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from examples import attention_relations, attention_sentences
from examples.attention_relations import READERS, dealt_edges, make_gnn, nearby_words, without_edges
from tests.examples.test_tree_heads import write_trees

ROWS = [("Dogs bark.", 1), ("Dogs the bark.", 0), ("He wrote a book.", 1), ("He the wrote.", 0)]


def run(script: object, monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> None:
    options = ["--data-dir", str(folder), "--graphs", str(folder / "graphs"), "--seeds", "1"]
    monkeypatch.setattr(sys, "argv", ["script", *options, *words])
    script.main()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_all_readers_name_relations_and_say_how_well(
    minilm_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_trees(tmp_path, 16)
    words = ["--model", minilm_path, "--epochs", "30", "--json", str(tmp_path / "scores.json")]
    run(attention_relations, monkeypatch, tmp_path, *words)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(READERS)
    assert all(": 100.0% right, 1 seed, " in line for line in lines)
    content = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert content["words"] == [3, 1] * 16 and content["base"] == "linear probe"


@pytest.mark.slow
def test_all_readers_tell_acceptable_sentences(
    minilm_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = "".join(f"gj04\t{label}\t\t{sentence}\n" for sentence, label in ROWS * 8)
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    run(attention_sentences, monkeypatch, tmp_path, "--model", minilm_path, "--epochs", "40")
    found = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in found] == list(READERS)
    assert all(": 1.000 (1.000 to 1.000, 1 seeds), " in line for line in found)


def test_the_gnn_reads_edges_and_is_a_reader_of_states_without_them() -> None:
    torch.manual_seed(0)
    edges = {"edge_index": torch.tensor([[0, 1], [1, 2]]), "edge_attr": torch.rand(2, 5)}
    graph = Data(x=torch.randn(3, 8), **edges)
    gnn = make_gnn([8, 16, 16, 4], 5).eval()
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


@pytest.mark.parametrize("script", [attention_relations, attention_sentences])
@pytest.mark.parametrize("words", [["--epochs", "0"], ["--learning-rate", "0"], []])
def test_bad_input_is_one_line(
    script: object, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=r"^attention_\w+: error: [^\n]+$"):
        run(script, monkeypatch, tmp_path / "nowhere", "--model", "m", *words)
