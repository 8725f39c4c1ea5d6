import re
from pathlib import Path
from typing import Any

import pytest

from jat_graph.tasks.squad_files import read_articles, read_squad
from tests.tasks.test_squad import question, write_file

BOOK = question("q", ("book", 3))


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ([question("q")], ": question q must have an answer, got []"),
        ([BOOK | {"answers": None}], ": question q must have an answer, got None"),
        (
            [question("q", ("book", 4))],
            ": question q must have the answer 'book' at character 4 of its context, got 'ook ' th",
        ),
        (
            [question("q", ("book", -31))],
            ": question q must have the answer 'book' at character ",
        ),
        (
            [question("q", ("book", 999))],
            ": question q must have the answer 'book' at character ",
        ),
        (
            [question("q", (" ", 0))],
            ": question q must have answers with text and answer_start, got {'text': ' ', ",
        ),
        (
            [BOOK | {"answers": ["book"]}],
            ": question q must have answers with text and answer_start",
        ),
        (
            [BOOK | {"answers": [{"text": "b", "answer_start": True}]}],
            ": question q must have answers with text and answer_start, got {'text': 'b', ",
        ),
        ([BOOK | {"question": " "}], ": question q must have text, got ' '"),
        ([BOOK, BOOK], ": question q must be there once, got it twice"),
        ([question("q", is_impossible=True)], ": question q must have an answer, got []"),
        ([{"question": "x"}], " must have the layout of SQuAD, got no 'id'"),
        ([1], " must have the layout of SQuAD, got something else"),
        ([], " must hold questions, got none"),
    ],
)
def test_questions_that_are_wrong(tmp_path: Path, questions: list[Any], message: str) -> None:
    path = write_file(tmp_path / "dev.json", *questions)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}{message}')}") as caught:
        read_squad(path, may_be_unanswerable=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("context", [None, "", " \n", 7])
def test_a_question_without_context(tmp_path: Path, context: Any) -> None:
    path = write_file(tmp_path / "dev.json", BOOK, context=context)
    message = f"{path}: question q must have a context, got {context!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_squad(path, may_be_unanswerable=False)


def test_wrong_questions_of_the_second_version(tmp_path: Path) -> None:
    path = write_file(tmp_path / "dev.json", BOOK | {"is_impossible": True})
    message = f"{path}: question q is_impossible and must have no answer, got 1"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_squad(path, may_be_unanswerable=True)
    write_file(tmp_path / "dev.json", question("q", is_impossible=False))
    with pytest.raises(ValueError, match=r": question q must have an answer, got \[\]$"):
        read_squad(path, may_be_unanswerable=True)


def test_articles_are_read_whatever_their_answers(tmp_path: Path) -> None:
    path = write_file(tmp_path / "dev.json", BOOK, {"id": 7}, context=None)
    assert read_articles(path) == [[(None, BOOK), (None, {"id": "7"})]]
