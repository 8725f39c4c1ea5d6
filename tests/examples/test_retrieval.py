"""The example that looks for long texts, on a few of them."""

import json
import sys
from pathlib import Path

import pytest

from examples import retrieval
from examples.retrieval import KINDS

FEW = ["--limit", "6", "--short", "16", "--long", "520", "--batch_size", "3", "--epochs", "1"]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["retrieval", *FEW, *words])
    retrieval.main()


@pytest.mark.usefixtures("minilm_path")
def test_articles_are_found_before_and_after_training(
    data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "found.json"
    words = ["--data_dir", str(data_dir), "--seeds", "1", "--json", str(file)]
    run(monkeypatch, *words)
    lines = capsys.readouterr().out.splitlines()
    hits = json.loads(file.read_text("utf-8"))["hits"]
    assert [*hits] == [
        *("16", "16, pieces", "16, trained", "16, trained, pieces"),
        *("520", "520, clusters", "520, trained", "520, trained, clusters"),
    ]
    for (counts,) in hits.values():
        assert counts["titles"][1] == 3 and counts["questions"][1] > 3
        assert counts["questions"] == [
            sum(counts[kind][place] for kind in KINDS[2:]) for place in (0, 1)
        ]
        assert all(right <= every for right, every in counts.values())
    assert len({counts[0]["questions"][0] for counts in hits.values()}) > 1
    assert len([line for line in lines if line.startswith("seed 0, ")]) == 4
    assert len([line for line in lines if " − " in line]) == 8

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(retrieval, "measure", refuse)  # it is known
    run(monkeypatch, *words)
    assert capsys.readouterr().out.splitlines() == lines
    with pytest.raises(SystemExit, match="must be of the same settings"):
        run(monkeypatch, *words, "--queries", "2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--long", "8"], "short must be above 0 and below long, got 16, 8"),
        (["--json", "none/a.json"], "none/a.json must be a file in a folder that is there"),
        (["--data_dir", "none"], "data_dir must be a folder, got none"),
        (["--epochs", "0"], "epochs must be at least 1, got 0"),
        (["--limit", "3"], "limit must leave 2 articles for either half, got 3"),
    ],
)
@pytest.mark.usefixtures("minilm_path")
def test_bad_input_is_one_line(
    words: list[str], message: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=f"^retrieval: error: {message}"):
        run(monkeypatch, "--data_dir", str(data_dir), *words)
