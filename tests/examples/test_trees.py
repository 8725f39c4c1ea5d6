"""Gold trees in the heads of a pretrained model."""

import gzip
import random
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import torch
from torch_geometric.utils import to_networkx
from transformers import AutoTokenizer

from examples.sweeps.trees import VARIANTS, Labeller, make_rows, random_heads, tree_graph
from jat_graph.probes import Sentence
from jat_graph.training import GraphCollator
from tests.examples.test_sweep import run_small

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


def rows_of(variant: str) -> list[dict[str, Any]]:
    return make_rows([TREE, LONGER], "ewtrelations", RELATIONS, variant)


def test_random_heads_are_any_tree_over_all_words() -> None:
    draw = random.Random(0)
    drawn = Counter(tuple(random_heads(3, draw)) for _ in range(9000))
    assert len(drawn) == 9 and min(drawn.values()) > 850  # three trees, three roots each
    heads = random_heads(20, draw)
    assert nx.is_tree(to_networkx(tree_graph(heads), to_undirected=True)) and heads.count(-1) == 1


def test_variants_differ_in_their_trees_only(minilm_path: str) -> None:
    given = {name: rows_of(name) for name in VARIANTS}
    assert len({str([{**row, "graph": None} for row in own]) for own in given.values()}) == 1
    gold = given["gold tree"]
    edges = [{*map(tuple, row["graph"].edge_index.T.tolist())} for row in gold]
    assert edges == [{(0, 2), (2, 0), (1, 2), (2, 1)}, {(0, 1), (1, 0)}]
    collator = GraphCollator(AutoTokenizer.from_pretrained(minilm_path))
    models = []
    for jumps in (False, True):
        torch.manual_seed(0)
        models.append(Labeller(minilm_path, jumps, len(RELATIONS)).eval())
    with torch.no_grad():
        want, before = (model(**collator(gold)) for model in models)
        torch.testing.assert_close(before, want, rtol=0, atol=1e-4)
        for name, theta in models[1].named_parameters():
            if name.endswith("strength.theta"):
                theta.fill_(0.5)
        along = models[1](**collator(gold))
        other = [{**gold[0], "graph": tree_graph([1, 2, -1])}, gold[1]]
        assert not torch.allclose(along, before, atol=1e-3)
        assert not torch.allclose(along, models[1](**collator(other)), atol=1e-3)


@pytest.mark.slow
def test_a_sweep_trains_and_keeps_what_is_said_of_each_sentence(
    minilm_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trees(tmp_path, 4)
    given = {"model": minilm_path, "data_dir": tmp_path, "options": {"num_train_epochs": 1}}
    results, text = run_small("trees", tmp_path / "out", capsys, seeds=2, **given)
    assert len(results.records) == 12 and "| random tree " in text
    for record in results.records:
        said, right = (record.content["answers"]["validation"][x] for x in ("said", "right"))
        assert [*map(len, said)] == [*map(len, right)] == [3, 1] * 4
        hits = [
            x == y for pair in zip(said, right, strict=True) for x, y in zip(*pair, strict=True)
        ]
        assert record.value("validation", "accuracy") == pytest.approx(sum(hits) / 16)
