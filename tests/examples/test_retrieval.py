"""The example that looks for long texts, on a few of them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from examples import retrieval
from examples.retrieval import KINDS, Document, Options, rank, read_documents, scores, tables
from tests.examples.conftest import Call

FEW = "--limit 6 --lengths 32 192 --batch_size 3 --epochs 1".split()


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@pytest.mark.slow
@pytest.mark.usefixtures("minilm_path")
def test_meetings_are_found_before_and_after_training(
    data_dir: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(retrieval, "CLUSTERED", 192)
    monkeypatch.setitem(retrieval.WAYS, "clusters", '{"dense_below": 0, "segment": 64}')
    file = tmp_path / "runs.jsonl"
    words = [retrieval, *FEW, "--task", "qmsum", "--data_dir", data_dir, "--output", file]
    call(*words, "--seeds", "1")
    rows = read(file)
    assert [(row["tokens"], row["read"], row["trained"]) for row in rows] == [
        *(
            (tokens, how, x)
            for x in (False, True)
            for tokens, how in ((32, "dense"), (192, "pieces"))
        ),
        *((192, how, x) for how in ("dense", "clusters") for x in (False, True)),
    ]
    for row in rows:
        assert {place for own in row["ranks"].values() for place in own} <= {1, 2, 3}
    assert len({json.dumps(row["ranks"]) for row in rows}) > 4  # dense and clusters may agree
    capsys.readouterr()
    call(*words, "--seeds", "2", "--longest_training", "32")
    again = read(file)
    assert again[: len(rows)] == rows and {row["seed"] for row in again[len(rows) :]} == {1}
    assert [row["tokens"] for row in again[len(rows) :] if row["trained"]] == [32, 192]  # in pieces
    call(*words, "--seeds", "2")
    more = [(row["tokens"], row["read"], row["seed"], row["trained"]) for row in read(file)]
    assert len(more) == len({*more}) == 2 * len(rows)
    assert "less read dense" in capsys.readouterr().out
    with pytest.raises(
        SystemExit, match="must have the layout of retrieval with the same settings"
    ):
        call(*words, "--queries", "2")


@pytest.mark.slow
@pytest.mark.usefixtures("minilm_path")
def test_texts_have_their_queries_and_where_answers_begin(data_dir: Path) -> None:
    options = Options(output=Path("none"), task="qmsum", data_dir=data_dir)
    documents = read_documents(options)
    assert len(documents) == 35 and sum(len(own.queries) for own in documents) == 237
    kinds = [kind for document in documents for kind in document.kinds]
    assert {*kinds} == {*KINDS[2:]} and kinds.count("answer farther") > len(kinds) / 2
    articles = read_documents(Options(output=Path("none"), data_dir=data_dir, limit=4))
    assert [article.kinds.count("titles") for article in articles] == [1] * 4
    assert not any(article.queries[0] in article.text[:200] for article in articles)
    assert {"answer near", "answer farther"} <= {x for article in articles for x in article.kinds}


def test_places_are_those_of_the_own_text_and_ties_are_lost() -> None:
    documents = [Document("", [""] * 2, ["titles", "answer far"]), Document("", [""], ["titles"])]
    cosines = [torch.tensor([[0.5, 0.2, 0.1], [0.2, 0.3, 0.9]]), torch.tensor([[0.4, 0.4, 0.4]])]
    ranks = rank(torch.eye(3), cosines, documents)
    assert ranks == {"titles": [1, 3], "answer far": [3]}
    row = {"task": "qmsum", "read": "dense", "tokens": 8, "seed": 0, "trained": False}
    rows = [row | {"ranks": ranks}, row | {"seed": 1, "ranks": {"titles": [2, 4]}}]
    found = scores(rows)["qmsum", "dense", 8, False]
    assert math.isclose(found[0, "titles", "MRR"], 2 / 3) and found[0, "questions", "hit@1"] == 0
    assert math.isclose(found[1, "titles", "MRR"], 3 / 8) and found[0, "titles", "hit@1"] == 0.5
    trained = [own | {"trained": True, "ranks": {"titles": [1, 2]}} for own in rows]
    assert "+0.229 (+0.083 to +0.375)" in "".join(tables([*rows, *trained]))


@pytest.mark.slow
def test_costs_are_of_all_ways(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def shape(build: Any, *arguments: Any, device: str) -> int:
        return int(build(*arguments)().size(1))  # where a peak in a process of its own would be

    monkeypatch.setattr(retrieval, "peak", shape)
    reading, training = (retrieval.costs(tiny_model, 48, 24, learns) for learns in (False, True))
    assert reading["dense bytes"] == training["clusters bytes"] == reading["tokens"] == 48
    assert training["dense seconds"] > reading["dense seconds"] > 0 < training["ratio"]
    assert reading["pieces ratio"] > 0 < training["pieces ratio"]
