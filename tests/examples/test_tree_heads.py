"""Gold trees in the heads of a pretrained model."""

import gzip
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
    VARIANTS,
    Labelled,
    Labeller,
    encode,
    make_sentences,
    predict,
    random_heads,
    tree_graph,
)
from jat_graph.probes import Sentence

SENTENCE = """\
1\tDogs\tdog\tNOUN\tNNS\t_\t3\tnsubj:outer\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t3\taux\t_\t_
3\tbark\tbark\tVERB\tVB\t_\t0\troot\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_

"""
TREE = Sentence(
    ("Dogs", "do", "bark"), ("NOUN", "AUX", "VERB"), (2, 2, -1), ("nsubj:outer", "aux", "root")
)
LONGER = Sentence(("Unquestionably", "dogs"), ("ADV", "NOUN"), (1, -1), ("aux", "root"))
RELATIONS = ["aux", "nsubj", "root"]


def write_trees(folder: Path, times: int) -> None:
    for split in ("train", "dev"):
        path = folder / f"en_ewt-ud-{split}.conllu.gz"
        path.write_bytes(gzip.compress((SENTENCE * times).encode()))


def sentences(variant: str, *trees: Sentence) -> list[Labelled]:
    return make_sentences(list(trees), "relation", RELATIONS, variant)


def test_words_begin_where_they_should(minilm_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    _, firsts, words = encode(sentences("no jumps", TREE, LONGER), tokenizer)
    assert [row.tolist() for row in words[firsts].split([3, 2])] == [[0, 1, 2], [0, 1]]
    assert (words[1] == 0).sum() > 1  # a word of several pieces


def test_random_heads_are_any_tree_over_all_words() -> None:
    draw = random.Random(0)
    drawn = Counter(tuple(random_heads(3, draw)) for _ in range(9000))
    assert len(drawn) == 9 and min(drawn.values()) > 850  # three trees, three roots each
    heads = random_heads(20, draw)
    assert nx.is_tree(to_networkx(tree_graph(heads), to_undirected=True)) and heads.count(-1) == 1


def test_variants_differ_in_their_heads_only(minilm_path: str) -> None:
    given = {name: sentences(name, TREE, LONGER) for name in VARIANTS}
    assert [one.heads for one in given["gold tree"]] == [TREE.heads, LONGER.heads]
    assert len({str([one._replace(heads=None) for one in own]) for own in given.values()}) == 1
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    torch.manual_seed(0)
    plain = Labeller(minilm_path, False, len(RELATIONS)).eval()
    torch.manual_seed(0)
    model = Labeller(minilm_path, True, len(RELATIONS)).eval()
    with torch.no_grad():
        before = predict(model, given["gold tree"], tokenizer)[0]
        want = predict(plain, given["no jumps"], tokenizer)[0]
        torch.testing.assert_close(before, want, rtol=0, atol=1e-4)
        for name, theta in model.named_parameters():
            if name.endswith("strength.theta"):
                theta.fill_(0.5)
        gold = predict(model, given["gold tree"], tokenizer)[0]
        other = [given["gold tree"][0]._replace(heads=[1, 2, -1]), given["gold tree"][1]]
        assert not torch.allclose(gold, before, atol=1e-3)
        assert not torch.allclose(gold, predict(model, other, tokenizer)[0], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["relation", "pos"])
def test_it_trains_tells_and_writes(
    label: str,
    minilm_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_trees(tmp_path, 4)
    words = ["--data-dir", str(tmp_path), "--model", minilm_path, "--seeds", "2", "--epochs", "1"]
    words += ["--label", label, "--json", str(tmp_path / "scores.json")]
    monkeypatch.setattr(sys, "argv", ["tree_heads", *words])
    tree_heads.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(VARIANTS)
    content = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert content["settings"]["label"] == label and content["words"] == [3, 1] * 4


@pytest.mark.parametrize(
    "words", [["--seeds", "0"], ["--label", "xpos"], ["--json", "nowhere/a.json"], []]
)
def test_bad_input_is_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["tree_heads", "--model", "m", "--data-dir", str(tmp_path / "nowhere"), *words]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit, match=r"^tree_heads: error: [^\n]+$"):
        tree_heads.main()
