import pytest

from jat_graph.tasks.answers import score_answers


@pytest.mark.parametrize(
    ("said", "right", "f1", "exact"),
    [
        ("Paris", ["Paris"], 1, 1),
        ("the  PARIS.", ["Paris"], 1, 1),  # articles, case, punctuation, spaces
        ("in Paris", ["Paris"], 2 / 3, 0),  # precision 1/2, recall 1
        ("Lyon", ["Paris", "Lyon"], 1, 1),  # the best of the right ones
        ("Lyon", ["Paris"], 0, 0),
        ("", ["Paris"], 0, 0),
    ],
)
def test_hand_computed_answers(said: str, right: list[str], f1: float, exact: float) -> None:
    scores = score_answers({"7": said}, {"7": right})
    assert scores == pytest.approx({"f1": f1, "exact_match": exact})


def test_questions_weigh_the_same() -> None:
    scores = score_answers({"1": "a b", "2": "c"}, {"1": ["x"], "2": ["c", "c d"]})
    assert scores == pytest.approx({"f1": 0.5, "exact_match": 0.5})


@pytest.mark.parametrize(
    ("said", "right", "message"),
    [
        ({}, {}, "answers must hold a question, got none"),
        ({}, {"q": ["x"]}, "question 'q' must have a prediction, got none"),
        ({"q": "x"}, {"p": ["x"], "q": ["x"]}, "question 'p' must have a prediction, got none"),
        ({"q": "x", "p": "x"}, {"q": ["x"]}, "question 'p' must have right answers, got none"),
        ({"q": "x"}, {"q": []}, "question 'q' must have right answers, got none"),
    ],
)
def test_questions_without_the_one_or_the_other(
    said: dict[str, str], right: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        score_answers(said, right)
