"""Gold trees in the heads of a pretrained model."""

import re
import sys
from pathlib import Path

import pytest
import torch
from scipy.stats import ttest_rel
from transformers import AutoTokenizer

from examples import tree_heads
from examples.jat_graph_transformer import Tree
from examples.tree_heads import Labeller, encode, predict, told, tree_graph
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
    words = ["--data-dir", str(tmp_path), "--model", minilm_path, "--seeds", "2", "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", ["tree_heads", *words])
    tree_heads.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(tree_heads.ARMS)
    assert all(re.search(r"% ± \d+\.\d right, 2 seeds, ", line) for line in lines)
    assert ["against no jumps" in line for line in lines] == [False, True, True, True]


def test_an_arm_is_told_seed_by_seed() -> None:
    base = [70.0, 72.0, 71.0]
    assert told(base, base) == "71.0% ± 1.0 right, 3 seeds"
    low, high = ttest_rel([71.0, 72.5, 73.0], base).confidence_interval(0.95)
    wanted = f"72.2% ± 1.0 right, 3 seeds, +1.2 ({low:+.1f} to {high:+.1f}) against no jumps"
    assert told([71.0, 72.5, 73.0], base) == wanted
    assert told([71.0], [70.0]) == "71.0% right, 1 seed, +1.0 against no jumps"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0"], "seeds must be at least 1, got 0"),
        (["--trees", "-3"], "trees must be at least 1, got -3"),
        (["--learning-rate", "0"], "learning_rate must be above 0, got 0.0"),
        (["--data-dir", "nowhere"], ".*nowhere.*"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["tree_heads", "--model", "m", "--data-dir", str(tmp_path), *words]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit, match=f"^tree_heads: error: {message}$"):
        tree_heads.main()
