"""probe, from a treebank to tables, pictures and captions."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

WORDS = ("book", "costs", "more", "than", "pencil", "computer", "the")
LABELS = ("nsubj", "obj", "det", "obl")


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    """A folder with trees that words hang in by their order."""
    draw = random.Random(0)
    for split, number in (("train", 30), ("dev", 24), ("test", 24)):
        rows = []
        for _ in range(number):
            labels = ["root", *(draw.choice(LABELS) for _ in range(draw.randint(3, 7)))]
            rows += [
                f"{head + 1}\t{draw.choice(WORDS)}\t_\tNOUN\t_\t_\t{head}\t{label}\t_\t_\n"
                for head, label in enumerate(labels)
            ]
            rows.append("\n")
        (tmp_path / f"tiny-{split}.conllu").write_text("".join(rows), encoding="utf-8")
    return tmp_path


def options_of(**options: Any) -> list[str]:
    return [part for name, own in options.items() for part in ("--option", f"{name}={own}")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "more"),
    [
        ("attention", {"relations": 3, "examples": 60, "seeds": [0]}, ()),
        ("heads", {"least": 5, "maps": "attention"}, ()),
        ("graphs", {"least": 5}, ("--config", "stones", "--set", "heads=all")),
        ("tree", {"epochs": 1, "layers": [1], "rank": 8}, ()),
    ],
)
def test_a_probe_writes_what_it_shows(
    kind: str,
    options: dict[str, Any],
    more: tuple[str, ...],
    run: Run,
    treebank: Path,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "out"
    call = ("probe", kind, "--model", "M", "--treebank", treebank, "--output", folder)
    result = run(*call, *more, *options_of(**options))
    tables = sorted(folder.glob("*.json"))
    assert tables
    for table in tables:
        found = json.loads(table.read_text(encoding="utf-8"))
        assert found["rows"]
        assert found["caption"] in result.stdout
        assert table.with_suffix(".md").read_text(encoding="utf-8").strip() in result.stdout
    assert len(list(folder.glob("*.png"))) == len(list(folder.glob("*.svg"))) == 1
    again = run(*call, *more, *options_of(**options))
    assert again.stdout == result.stdout  # rows are found again, and say the same


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("heads --treebank nosuch", "treebank nosuch must"),
        ("heads --treebank .", "must hold one file"),
        ("heads --treebank bank --option maps=graph", "model must have jump heads"),
        ("heads --treebank bank --option maps=eyes", "maps must"),
        ("heads --treebank bank --option epochs=3", "--option must"),
        ("tree --treebank bank --option layers=[99]", "layers must"),
        ("heads --treebank bank --set heads", "--set must"),
    ],
)
def test_wrong_input_is_refused_in_one_line(
    words: str, said: str, run: Run, treebank: Path
) -> None:
    given = [str(treebank) if word == "bank" else word for word in words.split()]
    with pytest.raises((ValueError, FileNotFoundError), match=said) as caught:
        run("probe", *given, "--model", "M", "--output", treebank / "out")
    assert "\n" not in str(caught.value)
    assert not (treebank / "out").exists()
