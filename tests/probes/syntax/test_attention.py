"""The attention probe: planted relations are found, and nothing where there is nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from jat_graph import JatConfig, PairGraph, attach
from jat_graph.probes import Sentence, attention_probe, read_treebank
from jat_graph.probes.syntax.attention import JOINED, WHICH
from jat_graph.probes.syntax.features import describe_pairs
from jat_graph.probes.syntax.samples import joined_or_not, of_each_relation
from jat_graph.probes.words import WordReader
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_model
from tests.probes.syntax.support import RELATIONS, plant, random_sentences, tiny


def parts(train: int = 60, test: int = 60) -> dict[str, list[Sentence]]:
    return {
        "train": random_sentences(train, 0, least=4),
        "test": random_sentences(test, 1, least=4),
    }


def rows_of(table: Any, task: str) -> Any:
    return table[table["task"] == task].set_index("told from")


def test_planted_relations_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each head gives to the words of one relation, from the dependent to its head."""
    given = parts()

    def maps_of(row: int, words: Any) -> torch.Tensor:
        found = next(own for own in (*given["train"], *given["test"]) if list(own.words) == words)
        maps = torch.zeros(len(RELATIONS), len(words), len(words))
        for word, head in found.edges:
            maps[RELATIONS.index(found.relations[word]), word, head] = 1.0
        return maps

    plant(monkeypatch, len(RELATIONS), maps_of)
    table = attention_probe(**tiny(), **given, folder=tmp_path, seeds=(0, 1)).table
    for task, chance in ((JOINED, 1 / 2), (WHICH, 1 / 4)):
        own = rows_of(table, task)
        assert own.loc["attention", ["accuracy", "low", "least", "chance"]].tolist() == [
            1.0,
            1.0,
            1.0,
            chance,
        ]
        assert own.loc["word distance", "accuracy"] < 0.8
        assert own.loc["control task", "pairs"] < own.loc["attention", "pairs"]
        control, difference = own.loc[["control task", "selectivity"], "accuracy"]
        assert difference == pytest.approx(1 - control)


def test_random_attention_is_at_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        monkeypatch,
        3,
        lambda row, words: torch.rand(
            3, len(words), len(words), generator=torch.Generator().manual_seed(row + 1000)
        ),
    )
    table = attention_probe(**tiny(), **parts(150, 150), folder=tmp_path, seeds=(1,)).table
    for task in (JOINED, WHICH):
        own = rows_of(table, task).loc["attention"]
        assert own["low"] < own["chance"] < own["high"]


@pytest.mark.parametrize("name", ["bert", "gpt2"])
@pytest.mark.parametrize("maps", ["attention", "scores", "propagated", "graph"])
def test_pairs_are_described_both_ways(name: str, maps: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    if maps != "attention":
        model = attach(model, JatConfig(PairGraph(threshold=0.5), heads="all"))
    reader = WordReader(model, tiny_tokenizer(), maps, 4)
    found = random_sentences(9, least=4)
    draw = np.random.default_rng(0)
    drawn = [joined_or_not(found, 12, draw), of_each_relation(found, RELATIONS[:2], 8, draw)]
    described = describe_pairs(tmp_path, reader, found, drawn)
    plan = reader.plan([list(own.words) for own in found])
    wanted = {own.row: own.maps for batch in reader.read(plan) for own in batch}
    for pairs, own in zip(drawn, described, strict=True):
        assert own.places.tolist() == list(range(len(pairs)))
        for row, (one, other), values in zip(pairs.rows, pairs.words, own.values, strict=True):
            later = wanted[row][:, one, other] * (name != "gpt2")
            both = torch.cat([later, wanted[row][:, other, one]])
            assert values == pytest.approx(both.numpy(), abs=1e-5)


def test_what_the_model_cannot_read_is_not_asked(tmp_path: Path) -> None:
    model, tokenizer = tiny_model("gpt2"), tiny_tokenizer()
    found = [*random_sentences(4, least=4), *random_sentences(1, least=80, most=80)]
    pairs = joined_or_not(found, 400, np.random.default_rng(0))
    (described,) = describe_pairs(
        tmp_path, WordReader(model, tokenizer, "attention"), found, [pairs]
    )
    assert described.places.tolist() == np.flatnonzero(pairs.rows < 4).tolist()
    assert len(described.values) == len(described.places) and described.values.any(1).all()


def test_a_model_with_jump_heads_beside_random_weights(tmp_path: Path) -> None:
    model = attach(tiny_model("bert"), JatConfig.stones())
    given: dict[str, Any] = parts(30, 20) | {"folder": tmp_path, "maps": "graph", "seeds": (0,)}
    found = attention_probe(model, tiny_tokenizer(), **given)
    again = attention_probe(model, tiny_tokenizer(), **given)
    assert found.table.equals(again.table)
    assert set(found.table["told from"]) == {
        "graph",
        "word distance",
        "random weights",
        "control task",
        "selectivity",
    }


def test_the_attention_of_a_real_model(data_dir: Path, minilm_path: str, tmp_path: Path) -> None:
    path = data_dir / "ud_english_ewt" / "en_ewt-ud-dev.conllu.gz"
    found = read_treebank(path, most=120, lengths=range(6, 20))
    model, tokenizer = (kind.from_pretrained(minilm_path) for kind in (AutoModel, AutoTokenizer))
    findings = attention_probe(
        model, tokenizer, found[:80], found[80:], tmp_path, relations=3, examples=400, seeds=(0,)
    )
    joined, which = (rows_of(findings.table, task) for task in (JOINED, WHICH))
    assert joined.loc["attention", "low"] > joined.loc["random weights", "high"]
    assert which.loc["attention", "low"] > which.loc["word distance", "high"]
    findings.save(tmp_path / "found")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": []}, r"^train must be one or more sentences, got \[\]$"),
        ({"test": ["dook"]}, "^test must hold sentences of a treebank, got 'dook'$"),
        ({"relations": 1}, "^relations must be at least 2, got 1$"),
        ({"examples": 0}, "^examples must be at least 2, got 0$"),
        ({"seeds": ()}, r"^seeds must be one or more integers, got \(\)$"),
        ({"seeds": (0.5,)}, "^seeds must be an integer, got 0.5$"),
        (
            {"train": random_sentences(5, least=4)},
            "^train must give pairs of 10 sentences at least",
        ),
    ],
)
def test_bad_input(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    given = {**parts(20, 20), "folder": tmp_path} | settings
    with pytest.raises(ValueError, match=message):
        attention_probe(**tiny(), **given)
