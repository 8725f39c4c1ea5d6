"""What probes find in a real model on a real treebank."""

from pathlib import Path

import pytest

from jat_graph import JatConfig, attach
from jat_graph.probes import (
    attention_probe,
    best_heads,
    graphs_and_trees,
    read_treebank,
    structural_probe,
)
from tests.probes.support import minilm


@pytest.mark.slow
def test_a_trained_model_knows_more_than_what_cannot_know(
    data_dir: Path, minilm_path: str, tmp_path: Path
) -> None:
    home, reader = data_dir / "ud_english_ewt", minilm(tmp_path, minilm_path)
    trees = read_treebank(home, split="dev", most=200, lengths=range(4, 20))
    test = read_treebank(home, split="test", most=120, lengths=range(4, 16))

    found = attention_probe(reader, trees[:80], test, relations=3, examples=400, seeds=(0,))
    tasks = found.table.set_index(["task", "told from"])
    joined, which = tasks.loc["is there a relation?"], tasks.loc["which relation?"]
    assert joined.loc["attention", "low"] > joined.loc["random weights", "high"]
    assert which.loc["attention", "low"] > which.loc["word distance", "high"]

    heads = best_heads(reader, trees, least=20).table.set_index("relation")
    assert heads.loc["det", "accuracy"] > 0.7 > heads.loc["det", "offset accuracy"]
    assert heads.loc["all", "gain low"] > 0

    sets = trees, test[:60], test[60:]
    own, random, line = structural_probe(reader, *sets, layers=(3,), rank=32, epochs=10).table[
        "UUAS"
    ]
    assert own > max(random + 0.05, line)

    attach(reader.model, JatConfig.stones())
    relations, heads_alone = graphs_and_trees(reader, trees[:40])
    table = relations.table.set_index("related")
    assert table.loc["head and dependent", "ratio low"] > 1.3
    assert table["density"].iloc[0] == pytest.approx(0.05, abs=0.005)
    assert len(heads_alone.table) == 6 * 12 * 3
    files = [len(one.save(tmp_path / "found")) for one in (found, relations, heads_alone)]
    assert files == [4, 4, 2]  # the last has no picture
