"""The attention probe: planted relations are found, and nothing where there is nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch

from jat_graph import JatConfig, attach
from jat_graph.probes import Sentence, attention_probe
from tests.hf.models import tiny_model
from tests.probes.support import (
    RELATIONS,
    planted,
    random_maps,
    random_sentences,
    tiny,
)

JOINED, WHICH = "is there a relation?", "which relation?"


def parts(train: int = 60, test: int = 60) -> dict[str, list[Sentence]]:
    found = random_sentences(train, 0, least=4), random_sentences(test, 1, least=4)
    return {"train": found[0], "test": found[1]}


def rows_of(table: Any, task: str) -> Any:
    return table[table["task"] == task].set_index("told from")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_planted_relations_are_told(name: str, tmp_path: Path) -> None:
    """Each head gives to the words of one relation, from the dependent to its head."""
    given_ = parts()

    def maps_of(words: Any) -> torch.Tensor:
        found = next(own for part in given_.values() for own in part if list(own.words) == words)
        maps = torch.zeros(len(RELATIONS), len(words), len(words))
        for word, head in found.edges:
            maps[RELATIONS.index(found.relations[word]), word, head] = 1.0
        return maps

    reader = planted(tmp_path, len(RELATIONS), maps_of, name)
    found = attention_probe(reader, **given_, seeds=(0, 1))
    for task, chance in ((JOINED, 1 / 2), (WHICH, 1 / 4)):
        own = rows_of(found.table, task)
        wanted = ["accuracy", "low", "least", "chance"]
        assert own.loc["attention", wanted].tolist() == [1.0, 1.0, 1.0, chance]
        assert own.loc["word distance", "accuracy"] < 0.8
        assert own.loc["control task", "pairs"] < own.loc["attention", "pairs"]
        control, difference = own.loc[["control task", "selectivity"], "accuracy"]
        assert difference == pytest.approx(1 - control)


@pytest.mark.slow
def test_random_attention_is_at_chance(tmp_path: Path) -> None:
    reader = planted(tmp_path, 4, random_maps(4, 0))
    table = attention_probe(reader, **parts(150, 150), seeds=(1,)).table
    for task in (JOINED, WHICH):
        own = rows_of(table, task).loc["attention"]
        assert own["low"] < own["chance"] < own["high"]


@pytest.mark.slow
def test_a_model_with_jump_heads_beside_random_weights(tmp_path: Path) -> None:
    reader = tiny(tmp_path, attach(tiny_model("bert"), JatConfig.stones()))
    given_: dict[str, Any] = parts(30, 20) | {"maps": "graph", "seeds": (0,)}
    given_["test"] += random_sentences(1, least=80, most=80)  # which the model cannot read
    found, again = (attention_probe(reader, **given_) for _ in range(2))
    assert found.table.equals(again.table)
    sources = ["graph", "word distance", "random weights", "control task", "selectivity"]
    assert found.table["told from"].tolist() == sources * 2
    pairs = rows_of(found.table, JOINED)["pairs"]
    assert pairs["word distance"] == pairs["graph"] == pairs["random weights"]
    assert found.settings["sentences"] == [30, 20]
