"""probe, from a treebank to tables, pictures and captions."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import nltk.data
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from jat_graph.cli.app import app
from jat_graph.cli.probe_options import evenly, read_split
from tests.cli.conftest import Run
from tests.probes.meaning.support import write_wordnet
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


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("senses", ("--semcor", "--evaluation")),
        ("ratio", ("--semcor",)),
        ("atlas", ("--texts", "--word")),
        ("tree", ("--treebank",)),
        ("distance", ("--treebank",)),
    ],
)
def test_a_layer_that_the_model_lacks_is_refused_before_data_are_read(
    name: str, data: tuple[str, ...], tiny_model: str, tmp_path: Path
) -> None:
    missing = [part for option in data for part in (option, str(tmp_path / "missing"))]
    command = ["probe", name, "--model", tiny_model, *missing, "--layer", "99"]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, ValueError)
    assert "--layer must be 0 to " in str(result.exception)  # and not that data are missing
    assert "got 99" in str(result.exception)


@example(there=9, most=7)
@given(st.integers(0, 3000), st.integers(1, 3000))
def test_as_many_sentences_are_read_as_are_asked_for_evenly(there: int, most: int) -> None:
    taken = evenly(range(there), most)
    assert len(taken) == min(there, most)
    steps = {after - before for before, after in itertools.pairwise(taken)}
    assert not steps or max(steps) - min(steps) <= 1
    assert evenly(range(there), None) == list(range(there))


def test_an_atlas_is_a_page_too(run: Run, tiny_model: str, treebank: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    call = ("probe", "atlas", "--model", tiny_model, "--word", "book", "--texts", treebank)
    result = run(*call, "--layer", "1", "--sentences", 12, "--output", folder)
    assert "12 sentences: about" in result.stderr
    page = (folder / "atlas.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "book by cluster" in page
    assert "book by part of speech" in page
    assert "atlas.html are in" in result.stdout
    with pytest.raises(ValueError, match="word must stand in a sentence, got 'eraser' in none of"):
        run(*call, "--word", "eraser")


def _write_senses(folder: Path) -> tuple[tuple[object, ...], tuple[object, ...]]:
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
    for place, name in enumerate(("br-a01", "br-a02")):
        path = folder / "semcor3.0" / "brown1" / "tagfiles" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(lines[20 * place : 20 * place + 20])
        text += "<s snum=99>\n<wf cmd=ignore pos=DT>a</wf>\n</s>\n"  # without a book
        path.write_text(f"<context filename={name}>\n{text}</context>\n", encoding="utf-8")
    sets = folder / "sets"
    sets.mkdir()
    text = f'<corpus lang="en" source="own"><text id="d000">{"".join(instances)}</text></corpus>'
    (sets / "own.data.xml").write_text(text, encoding="utf-8")
    (sets / "own.gold.key.txt").write_text("".join(keys), encoding="utf-8")
    wordnet = write_wordnet(folder / "wordnet")
    semcor = ("--semcor", folder / "semcor3.0", "--wordnet", wordnet)
    return semcor, ("--evaluation", sets)


@pytest.mark.parametrize(
    ("name", "options"), [("senses", ("--seeds", 1)), ("ratio", ("--pairs", 1))]
)
def test_senses_are_asked_after(
    name: str,
    options: tuple[object, ...],
    run: Run,
    tiny_model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nltk.data, "path", list(nltk.data.path))
    semcor, evaluation = _write_senses(tmp_path)
    folder = tmp_path / "out"
    given = (*semcor, *(evaluation if name == "senses" else ()), "--layer", "1", *options)
    result = run("probe", name, "--model", tiny_model, *given, "--output", folder)
    assert "semantic probe" in result.stderr
    found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    assert found["rows"] and found["caption"] in result.stdout
    assert list(folder.glob("*.png"))


def test_a_share_of_a_treebank_is_taken_evenly(treebank: Path) -> None:
    whole = read_split(treebank, "train", None)
    assert read_split(treebank, "train", 10) == whole[::3]
    assert read_split(treebank, "train", 99) == whole
    assert len(read_split(treebank, "train", 7)) == 7


def test_two_models_are_compared(run: Run, tiny_model: str, treebank: Path, tmp_path: Path) -> None:
    call = ("probe", "tree", "--treebank", treebank, "--epochs", 1, "--layer", "1", "--rank", 8)
    for name, more in (("base", ()), ("pairs", ("--preset", "paper"))):
        folder = tmp_path / name / "seed-0"
        run(*call, "--no-controls", "--model", tiny_model, "--output", folder, *more)
    arms = [f"{name}={tmp_path}/{name}/*/tree.json" for name in ("base", "pairs")]
    out = tmp_path / "out"
    result = run("probe", "compare", "--arm", arms[0], "--arm", arms[1], "--output", out)
    assert "UUAS of the probe 'tree' in each arm" in result.stdout
    both = [json.loads((tmp_path / n / "seed-0/tree.json").read_text()) for n in ("base", "pairs")]
    change = both[1]["rows"][0]["UUAS"] - both[0]["rows"][0]["UUAS"]
    rows = json.loads((out / "compared.json").read_text())["rows"]
    assert [row["change"] for row in rows[:2]] == [None, pytest.approx(change, abs=1e-5)]


@pytest.mark.parametrize(
    ("arms", "said"),
    [
        (["base"], "--arm must be NAME=FILES, got 'base'"),
        (["base=nowhere/*.json"], r"--arm base must name files that exist, got nowhere/\*.json"),
        (["a=x", "a=y"], "--arm must have names that differ, got a=x, a=y"),
    ],
)
def test_wrong_arms_are_refused(run: Run, arms: list[str], said: str) -> None:
    given = [part for arm in arms for part in ("--arm", arm)]
    with pytest.raises(ValueError, match=said):
        run("probe", "compare", *given)


def test_no_probe_has_an_option_that_it_does_not_use() -> None:
    commands: Any = get_command(app)
    own = {
        name: {option for p in command.params for option in p.opts}
        for name, command in commands.commands["probe"].commands.items()
        if name != "compare"  # which asks no model
    }
    assert {name for name, options in own.items() if "--batch-size" not in options} == {
        "tree",
        "distance",
    }
    assert all("--sentences" in options for options in own.values())
