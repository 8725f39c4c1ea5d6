"""Gold trees in the heads of a pretrained model."""

import json
import random
import sys
from collections import Counter
from pathlib import Path

import networkx as nx
import pytest
import torch
from torch_geometric.utils import to_networkx
from transformers import AutoTokenizer

from examples import tree_heads
from examples.tree_heads import (
    ARMS,
    Labelled,
    Labeller,
    encode,
    make_sentences,
    predict,
    random_heads,
    tree_graph,
)
from jat_graph.probes import Sentence
from tests.examples.test_jat_graph_transformer import TREE, write_trees

RELATIONS = sorted(set(TREE.relations))
LONGER = Sentence(("Unquestionably", "dogs"), ("ADV", "NOUN"), (1, -1), ("advmod", "root"))


def sentences(arm: str, *trees: Sentence) -> list[Labelled]:
    return make_sentences(list(trees), "relation", RELATIONS, arm)


def test_words_begin_where_they_should(minilm_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    encoding, firsts, words = encode(sentences("no jumps", TREE, LONGER), tokenizer)
    assert firsts.sum(-1).tolist() == [5, 2]
    pieces = tokenizer.convert_ids_to_tokens(encoding["input_ids"][1][words[1] == 0])
    assert len(pieces) > 1
    assert [row.tolist() for row in words[firsts].split([5, 2])] == [list(range(5)), [0, 1]]


def test_the_tree_has_no_direction() -> None:
    edges = set(map(tuple, tree_graph(TREE.heads).edge_index.T.tolist()))
    assert edges == {(a, 3) for a in (0, 1, 2, 4)} | {(3, a) for a in (0, 1, 2, 4)}


@pytest.mark.parametrize("num_words", [1, 2, 3, 20])
def test_random_heads_are_a_tree_over_all_words(num_words: int) -> None:
    for seed in range(10):
        heads = random_heads(num_words, random.Random(seed))
        assert heads == random_heads(num_words, random.Random(seed))
        graph = tree_graph(heads)
        assert graph.num_nodes == num_words and graph.num_edges == 2 * (num_words - 1)
        assert nx.is_tree(to_networkx(graph, to_undirected=True))
        assert heads.count(-1) == 1


def test_every_tree_is_as_likely_as_any_other() -> None:
    draw = random.Random(0)
    drawn = Counter(tuple(random_heads(3, draw)) for _ in range(9000))
    assert len(drawn) == 9  # three trees, three roots each
    assert min(drawn.values()) > 850 and max(drawn.values()) < 1150


def test_arms_differ_in_their_heads_only() -> None:
    given = {arm: sentences(arm, TREE, LONGER, TREE) for arm in ARMS}
    assert [one.heads for one in given["no jumps"]] == [None] * 3
    assert [one.heads for one in given["gold tree"]] == [TREE.heads, LONGER.heads, TREE.heads]
    first, _, third = given["random tree"]
    assert first.heads != third.heads  # each sentence has its own
    assert given["random tree"] == sentences("random tree", TREE, LONGER, TREE)
    assert given["random tree"][:1] == sentences("random tree", TREE)
    assert len({str([one._replace(heads=None) for one in own]) for own in given.values()}) == 1


def test_labels_are_relations_or_parts_of_speech() -> None:
    (told,) = make_sentences([TREE], "pos", ["AUX", "NOUN", "VERB"], "gold tree")
    assert told.classes == [1, 0, -1, 2, -1]
    (told,) = sentences("gold tree", TREE)
    assert tuple(RELATIONS[place] for place in told.classes) == TREE.relations


def test_arms_begin_at_the_same_weights_and_answers(minilm_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    logits = []
    for arm in ARMS:
        torch.manual_seed(0)
        model = Labeller(minilm_path, arm != "no jumps", len(RELATIONS)).eval()
        with torch.no_grad():
            logits.append(predict(model, sentences(arm, TREE, LONGER), tokenizer)[0])
    torch.testing.assert_close(logits[1], logits[0], rtol=0, atol=1e-4)
    assert torch.equal(logits[1], logits[2])


def test_another_tree_changes_what_heads_see(minilm_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    torch.manual_seed(0)
    model = Labeller(minilm_path, True, len(RELATIONS)).eval()
    gold = sentences("gold tree", TREE)
    other = [gold[0]._replace(heads=[1, 2, 3, -1, 0])]
    with torch.no_grad():
        at_rest, classes, rows = predict(model, gold, tokenizer)
        assert torch.equal(at_rest, predict(model, other, tokenizer)[0])
        for name, theta in model.named_parameters():
            if name.endswith("strength.theta"):
                theta.fill_(0.5)
        jumping = predict(model, gold, tokenizer)[0]
        assert not torch.allclose(jumping, at_rest, atol=1e-3)
        elsewhere = predict(model, other, tokenizer)[0]
        assert not torch.allclose(jumping, elsewhere, atol=1e-3)
    assert tuple(RELATIONS[place] for place in classes.tolist()) == TREE.relations
    assert rows.tolist() == [0] * 5


@pytest.mark.parametrize("label", ["relation", "pos"])
def test_it_trains_tells_and_writes(
    label: str,
    minilm_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    write_trees(tmp_path, 4)
    words = ["--data-dir", str(tmp_path), "--model", minilm_path, "--seeds", "2", "--epochs", "1"]
    file = tmp_path / "scores.json"
    argv = ["tree_heads", *words, "--label", label, "--json", str(file)]
    monkeypatch.setattr(sys, "argv", argv)
    tree_heads.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(ARMS)
    assert ["against no jumps" in line for line in lines] == [False, True, True]
    content = json.loads(file.read_text(encoding="utf-8"))
    assert content["settings"]["label"] == label and str(tmp_path) not in json.dumps(content)
    assert content["words"] == [5, 1] * 4
    for found in content["arms"].values():
        for counts in found["right"]:
            pairs = zip(counts, content["words"], strict=True)
            assert all(0 <= right <= most for right, most in pairs)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0"], "seeds must be at least 1, got 0"),
        (["--trees", "-3"], "trees must be at least 1, got -3"),
        (["--learning-rate", "0"], "learning_rate must be above 0, got 0.0"),
        (["--label", "xpos"], "label must be relation or pos, got 'xpos'"),
        (["--json", "nowhere/a.json"], "nowhere/a.json must be a file in a folder that is there.*"),
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
