"""view, from texts and treebanks to one page."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

TREES = """\
1\tthe\tthe\tDET\t_\t_\t2\tdet\t_\t_
2\tbook\tbook\tNOUN\t_\t_\t3\tnsubj\t_\t_
3\tcosts\tcost\tVERB\t_\t_\t0\troot\t_\t_

1\tmore\tmore\tADJ\t_\t_\t0\troot\t_\t_
2\tthan\tthan\tADP\t_\t_\t1\tfixed\t_\t_

"""


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    path = tmp_path / "trees.conllu.gz"
    path.write_bytes(gzip.compress(TREES.encode()))
    return path


def data_of(path: Path) -> Any:
    (data,) = re.findall(r'id="data">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    return json.loads(data)


def test_a_page_of_texts_and_trees(
    run: Run, tiny_model: str, treebank: Path, tmp_path: Path
) -> None:
    page = tmp_path / "heads.html"
    shown = run(
        "view", "--model", tiny_model, "--sentence", "the pencil", "--treebank", treebank,
        "--preset", "stones", "--heads", "1,3", "--layer", "1", "--title", "Tiny", "-o", page,
    ).output  # fmt: skip
    assert "The page is in" in shown
    data = data_of(page)
    assert data["title"] == "Tiny"
    assert [text["title"] for text in data["texts"]] == [
        "the pencil",
        "the book costs",
        "more than",
    ]
    assert [text["parse"] is None for text in data["texts"]] == [True, False, False]
    assert data["texts"][1]["parse"]["relations"] == ["det", "nsubj", "root"]
    kinds = [list(head["links"]) for head in data["texts"][0]["heads"]]
    assert kinds[0] == ["attention"]
    assert kinds[1] == kinds[3] == ["attention", "before", "difference", "graph"]


def test_a_base_and_one_sentence_of_a_treebank(
    run: Run, tiny_model: str, treebank: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    run("view", "--model", tiny_model, "--treebank", treebank, "--sentence-number", 2, "-o", page)
    data = data_of(page)
    assert data["title"] == Path(tiny_model).name
    assert [text["title"] for text in data["texts"]] == ["more than"]
    assert {kind for head in data["texts"][0]["heads"] for kind in head["links"]} == {"attention"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "view needs --text or --sentence or --treebank"),
        (["--treebank", "TREES", "--sentence-number", "3"], "must be of the 2 in .*, got 3"),
        (["--treebank", "TREES", "--sentence-number", "0"], "must count from 1, got 0"),
        (["--treebank", "TREES", "--sentence-number", "2:2"], "--sentence-number must be FIRST:EN"),
        (["--sentence", "book", "-o", "none/x.html"], "must be a file in a folder that is there"),
        (
            ["--sentence", "book", "--layer", "5"],
            "--layer must be one of .* 2 layers, 0 to 1, got 5",
        ),
    ],
)
def test_wrong_use_is_named(
    run: Run, tiny_model: str, treebank: Path, words: list[str], message: str
) -> None:
    given = [str(treebank) if word == "TREES" else word for word in words]
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        run("view", "--model", tiny_model, *given)
