"""The example of words and their relations, on sentences of three words."""

import gzip
import json
import sys
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from examples import attention_relations
from examples.attention_relations import GNN, READERS, dealt_edges, nearby_words, without_edges

SENTENCES = """\
# text = Dogs don't bark.
1\tDogs\tdog\tNOUN\tNNS\t_\t4\tnsubj:outer\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tbark\tbark\tVERB\tVB\t_\t0\troot\t_\t_
4.1\tbark\tbark\tVERB\tVB\t_\t_\t_\t_\t_

# text = Yes
1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_

"""


def write_sentences(folder: Path, times: int) -> None:
    for split in ("train", "dev"):
        path = folder / f"en_ewt-ud-{split}.conllu.gz"
        path.write_bytes(gzip.compress((SENTENCES * times).encode()))


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> None:
    options = ["--data-dir", str(folder), "--graphs", str(folder / "graphs"), "--seeds", "1"]
    monkeypatch.setattr(sys, "argv", ["attention_relations", *options, *words])
    attention_relations.main()


def test_all_readers_learn_and_say_how_well(
    minilm_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_sentences(tmp_path, 16)
    file = tmp_path / "scores.json"
    run(monkeypatch, tmp_path, "--model", minilm_path, "--epochs", "30", "--json", str(file))
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(READERS)
    assert all(": 100.0% right, 1 seed, " in line for line in lines)
    assert [", +0.0 against linear probe" in line for line in lines] == [False] + [True] * 5
    content = json.loads(file.read_text(encoding="utf-8"))
    assert content["words"] == [4, 1] * 16 and content["base"] == "linear probe"
    assert {arm: found["right"] for arm, found in content["arms"].items()} == {
        name: [content["words"]] for name in READERS
    }
    assert str(tmp_path) not in json.dumps(content)


def test_the_gnn_reads_edges_and_is_a_reader_of_states_without_them() -> None:
    torch.manual_seed(0)
    graph = Data(
        x=torch.randn(3, 8), edge_index=torch.tensor([[0, 1], [1, 2]]), edge_attr=torch.rand(2, 5)
    )
    gnn = GNN([8, 16, 16, 4], 5).eval()
    whole, alone = gnn(graph), gnn(without_edges(graph.clone()))
    assert whole.shape == (3, 4)
    torch.testing.assert_close(whole[0], alone[0])  # nothing leads to it
    assert (whole[1:] - alone[1:]).abs().amin(-1).min() > 1e-6
    moved = without_edges(
        Data(x=graph.x[[2]], edge_index=graph.edge_index, edge_attr=graph.edge_attr)
    )
    torch.testing.assert_close(gnn(moved), alone[[2]])


def test_dealt_edges_keep_what_they_carry_and_how_many_a_word_has() -> None:
    graph = Data(edge_index=torch.randint(9, (2, 40)), edge_attr=torch.rand(40, 5), num_nodes=9)
    dealt = dealt_edges(graph.clone())
    for row in (0, 1):
        assert torch.equal(dealt.edge_index[row].bincount(), graph.edge_index[row].bincount())
    assert torch.equal(dealt.edge_attr, graph.edge_attr)
    assert not torch.equal(dealt.edge_index, graph.edge_index)
    assert torch.equal(dealt.edge_index, dealt_edges(graph.clone()).edge_index)


def test_nearby_words_have_edges_that_say_how_far_they_are() -> None:
    graph = nearby_words(Data(x=torch.randn(4, 8), edge_index=torch.tensor([[0], [3]])))
    kinds = [0, 1, 3, 4]  # two before, one before, one behind, two behind
    edges = zip(*graph.edge_index.tolist(), graph.edge_attr.argmax(-1).tolist(), strict=True)
    assert set(edges) == {
        (here, there, kind)
        for kind, step in zip(kinds, (2, 1, -1, -2), strict=True)
        for here in range(4)
        if 0 <= (there := here + step) < 4
    }
    assert graph.edge_attr.shape == (10, 5) and bool((graph.edge_attr.sum(-1) == 1).all())
    assert nearby_words(Data(x=torch.randn(1, 8))).num_edges == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sentences", "0"], "sentences must be at least 1, got 0"),
        (["--layer", "9"], "layer must be below 7, got 9"),
        (["--json", "/"], "/ must be a file, got a folder"),
        (["--max-neighbors", "0"], "max_neighbors must be at least 1, got 0"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    message: str,
    minilm_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_sentences(tmp_path, 1)
    with pytest.raises(SystemExit, match=f"^attention_relations: error: {message}$"):
        run(monkeypatch, tmp_path, "--model", minilm_path, *words)


def test_missing_sentences_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"^attention_relations: error: .*en_ewt-ud-train"):
        run(monkeypatch, tmp_path, "--model", "nowhere")
