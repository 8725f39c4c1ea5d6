"""probe, from a treebank to tables, pictures and captions."""

import json
import random
from pathlib import Path
from typing import Any

import nltk.data
import pytest

from tests.cli.conftest import Run
from tests.probes.support import write_wordnet

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
    ("kind", "options", "more", "pictures"),
    [
        ("attention", {"relations": 3, "examples": 60, "seeds": [0]}, (), 1),
        ("heads", {"least": 5, "maps": "attention"}, (), 1),
        ("graphs", {"least": 5}, ("--config", "stones", "--set", "heads=all"), 2),
        ("tree", {"epochs": 1, "layers": [1], "rank": 8}, (), 2),
        ("distance", {"epochs": 1, "layer": 1, "rank": 8, "least": 5}, (), 2),
    ],
)
def test_a_probe_writes_what_it_shows(
    kind: str,
    options: dict[str, Any],
    more: tuple[str, ...],
    pictures: int,
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
    assert len(list(folder.glob("*.png"))) == len(list(folder.glob("*.svg"))) == pictures
    again = run(*call, *more, *options_of(**options))
    assert again.stdout == result.stdout  # rows are found again, and say the same


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("heads --treebank nosuch", "treebank nosuch must"),
        ("heads --treebank .", "must hold one file"),
        ("heads", "needs --treebank"),
        ("heads --treebank bank --word light", "takes no --word"),
        ("ratio --semcor nosuch --evaluation x", "takes no --evaluation"),
        ("heads --treebank bank --option maps=graph", "model must have jump heads"),
        ("heads --treebank bank --option maps=eyes", "maps must"),
        ("heads --treebank bank --option epochs=3", "--option must"),
        ("tree --treebank bank --option layers=[99]", "layers must"),
        ("heads --treebank bank --set heads", "--set must"),
        ("compare --variant base", "--variant must be NAME=FILES"),
        ("compare --variant base=nowhere/*.json", "--variant base must name files that exist"),
    ],
)
def test_wrong_input_is_refused_in_one_line(
    words: str, said: str, run: Run, treebank: Path
) -> None:
    given = [str(treebank) if word == "bank" else word for word in words.split()]
    given += [] if words.startswith("compare") else ["--model", "M"]
    with pytest.raises((ValueError, FileNotFoundError), match=said) as caught:
        run("probe", *given, "--output", treebank / "out")
    assert "\n" not in str(caught.value)
    assert not (treebank / "out").exists()


@pytest.mark.slow
def test_an_atlas_is_a_page_too(run: Run, treebank: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    call = ("probe", "atlas", "--model", "M", "--word", "book", "--texts", treebank)
    result = run(*call, *options_of(layers=[1]), "--sentences", 12, "--output", folder)
    page = (folder / "atlas.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "book by cluster" in page and "book by part of speech" in page
    assert "atlas.html are in" in result.stdout
    found = json.loads((folder / "atlas.json").read_text(encoding="utf-8"))
    assert found["settings"]["sentences_shown"] == 12


def _write_senses(folder: Path) -> dict[str, Path]:
    """WordNet, SemCor and an evaluation set in which the sense of a book goes with its words."""
    draw = random.Random(0)
    lines, instances, keys = [], [], []
    for number in range(40):
        lexical, other = draw.choice([("1:10:00::", "the"), ("1:06:01::", "computer")])
        words = f"<wf cmd=ignore pos=DT>{other}</wf>\n" * draw.randint(1, 3)
        book = f"<wf cmd=done pos=NN lemma=book wnsn=1 lexsn={lexical}>book</wf>\n"
        lines.append(f"<s snum={number}>\n{words}{book}</s>\n")
        name = f"d000.s{number:03}"
        instance = f'<instance id="{name}.t000" lemma="book" pos="NOUN">book</instance>'
        before = f'<wf lemma="{other}" pos="DET">{other}</wf>'
        instances.append(f'<sentence id="{name}">{before}{instance}</sentence>')
        keys.append(f"{name}.t000 book%{lexical}\n")
    for index, name in enumerate(("br-a01", "br-a02")):
        path = folder / "semcor3.0" / "brown1" / "tagfiles" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(lines[20 * index : 20 * index + 20])
        text += "<s snum=99>\n<wf cmd=ignore pos=DT>a</wf>\n</s>\n"  # without a book
        path.write_text(f"<context filename={name}>\n{text}</context>\n", encoding="utf-8")
    sets = folder / "sets"
    sets.mkdir()
    text = f'<corpus lang="en" source="own"><text id="d000">{"".join(instances)}</text></corpus>'
    (sets / "own.data.xml").write_text(text, encoding="utf-8")
    (sets / "own.gold.key.txt").write_text("".join(keys), encoding="utf-8")
    wordnet = write_wordnet(folder / "wordnet")
    return {"semcor": folder / "semcor3.0", "wordnet": wordnet, "evaluation": sets}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), [("senses", {"seeds": [0]}), ("ratio", {"pairs": 1})])
def test_senses_are_asked_after(
    kind: str, options: dict[str, Any], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nltk.data, "path", list(nltk.data.path))
    data, folder = _write_senses(tmp_path), tmp_path / "out"
    if kind == "ratio":
        del data["evaluation"]
    given = [part for name, path in data.items() for part in (f"--{name}", path)]
    own = options_of(**options, layers=[1])
    result = run("probe", kind, "--model", "M", *given, *own, "--output", folder)
    found = json.loads((folder / f"{kind}.json").read_text(encoding="utf-8"))
    assert found["rows"] and found["caption"] in result.stdout
    assert list(folder.glob("*.png"))


@pytest.mark.slow
def test_two_models_are_compared(run: Run, treebank: Path, tmp_path: Path) -> None:
    own = options_of(epochs=1, layers=[1], rank=8, controls="false")
    for name, more in (("base", ()), ("pairs", ("--config", "paper"))):
        folder = tmp_path / name / "seed-0"
        call = ("probe", "tree", "--treebank", treebank, "--model", "M", *own)
        run(*call, "--output", folder, *more)
    variants = [
        part
        for name in ("base", "pairs")
        for part in ("--variant", f"{name}={tmp_path}/{name}/*/tree.json")
    ]
    out = tmp_path / "out"
    run("probe", "compare", *variants, "--output", out)
    both = [json.loads((tmp_path / n / "seed-0/tree.json").read_text()) for n in ("base", "pairs")]
    change = both[1]["rows"][0]["UUAS"] - both[0]["rows"][0]["UUAS"]
    rows = json.loads((out / "compared.json").read_text())["rows"]
    assert [row["change"] for row in rows[:2]] == [None, pytest.approx(change, abs=1e-5)]
