"""Gold trees in the heads of a pretrained model."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from examples import tree_heads
from examples.jat_graph_transformer import Tree
from examples.tree_heads import Labeller, encode, predict, tree_graph
from tests.examples.test_jat_graph_transformer import TREE, write_trees

LABELS = sorted(set(TREE.relations))
LONGER = Tree(["Unquestionably", "dogs"], ["ADV", "NOUN"], [2, 0], ["advmod", "root"])


def test_words_begin_where_they_should(minilm_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    encoding, firsts, words = encode([TREE, LONGER], tokenizer)
    assert firsts.sum(-1).tolist() == [5, 2]
    pieces = tokenizer.convert_ids_to_tokens(encoding["input_ids"][1][words[1] == 0])
    assert len(pieces) > 1
    assert [row.tolist() for row in words[firsts].split([5, 2])] == [list(range(5)), [0, 1]]


def test_the_tree_has_no_direction() -> None:
    edges = set(map(tuple, tree_graph(TREE).edge_index.T.tolist()))
    assert edges == {(a, 3) for a in (0, 1, 2, 4)} | {(3, a) for a in (0, 1, 2, 4)}


def test_another_tree_changes_what_heads_see(minilm_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    torch.manual_seed(0)
    model = Labeller(minilm_path, True, None, len(LABELS)).eval()
    other = TREE._replace(heads=[2, 3, 4, 0, 1])
    with torch.no_grad():
        at_rest, classes = predict(model, [TREE], tokenizer, LABELS, gold=True)
        assert torch.equal(at_rest, predict(model, [other], tokenizer, LABELS, gold=True)[0])
        for name, theta in model.named_parameters():
            if name.endswith("strength.theta"):
                theta.fill_(0.5)
        jumping, _ = predict(model, [TREE], tokenizer, LABELS, gold=True)
        assert not torch.allclose(jumping, at_rest, atol=1e-3)
        elsewhere, _ = predict(model, [other], tokenizer, LABELS, gold=True)
        assert not torch.allclose(jumping, elsewhere, atol=1e-3)
    assert [LABELS[place] for place in classes.tolist()] == TREE.relations


def test_it_trains_and_tells(
    minilm_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    write_trees(tmp_path, 4)
    words = ["--data-dir", str(tmp_path), "--model", minilm_path, "--seeds", "1", "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", ["tree_heads", *words])
    tree_heads.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(tree_heads.ARMS)
    assert all("% right" in line for line in lines)


def test_a_wrong_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minilm_path: str
) -> None:
    words = ["--data-dir", str(tmp_path / "none"), "--model", minilm_path]
    monkeypatch.setattr(sys, "argv", ["tree_heads", *words])
    with pytest.raises(SystemExit, match=r"tree_heads: error: .*none"):
        tree_heads.main()
