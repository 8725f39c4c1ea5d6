"""Pages of help at several widths: every name whole, every option under its title."""

import re
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from jat_graph.cli.app import app

PROGRAM: Any = get_command(app)
COMMANDS = sorted(
    [(name,) for name in PROGRAM.commands if name != "probe"]
    + [("probe", name) for name in PROGRAM.commands["probe"].commands]
)


def _page(words: list[str], columns: int) -> str:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(app, [*words, "--help"]).output


def _names(words: tuple[str, ...]) -> list[str]:
    command = PROGRAM
    for word in words:
        command = command.commands[word]
    return [name for p in command.params for name in (*p.opts, *p.secondary_opts)]


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_name_is_whole_and_no_line_too_long(command: tuple[str, ...], columns: int) -> None:
    page = _page([*command], columns)
    words = set(re.split(r"[\s,]+", page))
    assert _names(command)
    assert not set(_names(command)) - words
    assert "…" not in page
    assert max(map(len, page.splitlines())) < min(columns, 100)


def test_no_word_is_broken_at_its_hyphens() -> None:
    for columns in range(60, 100):
        page = _page(["train"], columns)
        assert not re.search(r"\w-$", page, re.MULTILINE), columns
        assert "released-efficient" in page


def test_options_stand_under_their_titles() -> None:
    parts = _page(["train"], 80).split("\n\n")
    titles = {part.partition(":\n")[0]: part for part in parts if ":\n" in part}
    assert list(titles) == ["Options", "Jump attention", "Triplet attention", "Training"]
    assert "--task <str>" in titles["Options"]
    assert "--vote-rate <float>" in titles["Jump attention"]
    assert "--triplet-heads <int>" in titles["Triplet attention"]
    assert "--learning-rate <float>" in titles["Training"]
    assert "[default: 2e-05]" in titles["Training"]


def test_paragraphs_are_wrapped_anew() -> None:
    told = _page(["plot"], 80).split("\n\n")[2].splitlines()
    assert len(told) > 2
    assert min(map(len, told[:-1])) > 40  # no line of a paragraph ends early


def test_the_program_lists_its_commands() -> None:
    page = _page([], 80)
    assert set(PROGRAM.commands) <= set(page.split("Commands:\n")[1].split())
