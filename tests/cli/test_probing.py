"""probe, from a treebank to tables, pictures and captions."""

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jat_graph.cli.app import app
from tests.cli.conftest import Run
from tests.training.conftest import WORDS

LABELS = ("nsubj", "obj", "det", "obl")


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    """A folder with trees that words hang in by their places."""
    draw = random.Random(0)
    for split, number in (("train", 30), ("dev", 24), ("test", 24)):
        sentences = (_sentence(draw, draw.randint(4, 8)) for _ in range(number))
        (tmp_path / f"tiny-{split}.conllu").write_text("".join(sentences), encoding="utf-8")
    return tmp_path


def _sentence(draw: random.Random, length: int) -> str:
    labels = ["root", *(draw.choice(LABELS) for _ in range(length - 1))]
    rows = (
        f"{head + 1}\t{draw.choice(WORDS)}\t_\tNOUN\t_\t_\t{head}\t{label}\t_\t_\n"
        for head, label in enumerate(labels)
    )
    return "".join(rows) + "\n"


@pytest.mark.parametrize(
    ("name", "options", "pictures"),
    [
        ("attention", ("--relations", 3, "--examples", 60, "--seeds", 1), 1),
        ("heads", ("--least", 5), 1),
        ("graphs", ("--least", 5, "--preset", "stones"), 2),
        ("tree", ("--epochs", 1, "--layer", "1", "--rank", 8), 3),
        ("distance", ("--epochs", 1, "--layer", 1, "--rank", 8, "--least", 5), 2),
    ],
)
def test_a_probe_writes_what_it_shows(
    name: str,
    options: tuple[object, ...],
    pictures: int,
    run: Run,
    tiny_model: str,
    treebank: Path,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "out"
    call = ("probe", name, "--model", tiny_model, "--treebank", treebank, *options)
    result = run(*call, "--output", folder)
    assert "sentences: about" in result.stderr
    tables = sorted(folder.glob("*.json"))
    assert tables
    for table in tables:
        found = json.loads(table.read_text(encoding="utf-8"))
        assert found["rows"]
        assert found["caption"] in result.stdout
        assert table.with_suffix(".md").read_text(encoding="utf-8").startswith(found["caption"])
    assert len(list(folder.glob("*.png"))) == len(list(folder.glob("*.svg"))) >= pictures
    again = run(*call, "--output", folder)
    assert again.stdout == result.stdout  # rows are found again, and say the same


def test_a_dry_run_says_how_long_and_writes_nothing(
    run: Run, tiny_model: str, treebank: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    call = ("probe", "heads", "--model", tiny_model, "--treebank", treebank, "--output", folder)
    result = run(*call, "--least", 5, "--dry-run")
    assert result.stdout == ""
    assert "24 sentences: about" in result.stderr
    assert not folder.exists()


def test_80_columns_cut_nothing(tiny_model: str, treebank: Path, tmp_path: Path) -> None:
    call = ["probe", "heads", "--model", tiny_model, "--treebank", str(treebank), "--least", "5"]
    runner = CliRunner(env={"COLUMNS": "80"})
    result = runner.invoke(app, [*call, "--output", str(tmp_path / "out")], catch_exceptions=False)
    table = result.stdout.partition("Share of")[0]
    assert "…" not in table
    assert all(len(line) <= 80 for line in table.splitlines())
    assert all(label in table for label in LABELS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--treebank", "nosuch"), r"must be a folder with one file \*-dev.conllu or .gz, got 0"),
        (("--maps", "graph"), "model must have jump heads"),
        (("--maps", "eyes"), "maps must be one of attention, scores, propagated, graph"),
    ],
)
def test_wrong_input_is_refused_in_one_line(
    options: tuple[str, ...], said: str, run: Run, tiny_model: str, treebank: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    call = ("probe", "heads", "--model", tiny_model, "--treebank", treebank, "--output", folder)
    with pytest.raises(ValueError, match=said) as caught:
        run(*call, *options)
    assert "\n" not in str(caught.value)
    assert not folder.exists()


def test_an_atlas_is_a_page_too(run: Run, tiny_model: str, treebank: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    call = ("probe", "atlas", "--model", tiny_model, "--word", "book", "--texts", treebank)
    result = run(*call, "--layer", "1", "--output", folder)
    page = (folder / "atlas.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "book by cluster" in page
    assert "book by part of speech" in page
    assert "atlas.html are in" in result.stdout
    with pytest.raises(ValueError, match="word must stand in a sentence, got 'eraser' in none of"):
        run(*call, "--word", "eraser")
