"""Measures of answers to questions, from torchmetrics, and the rule for questions without one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A text, and by how much a model rather says that there is no answer.
Doubted: TypeAlias = Sequence[Any]

_NAMES = ("exact_match", "f1")
_REMEMBERED = 1 << 18  # pairs of answers: those of a few runs on SQuAD


def score_answers(said: Sequence[str], right: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compare answers with the right ones: letters' case, punctuation and articles do not count.

    Reference:
        Rajpurkar et al., *SQuAD: 100,000+ Questions for Machine Comprehension of Text*, EMNLP 2016;
        torchmetrics' ``SQuAD``.
    """
    import numpy as np

    _check(said, right)
    for number, texts in enumerate(right):
        if not texts:
            raise ValueError(f"question {number} must have right answers, got none")
    scores = [_score(text, tuple(texts)) for text, texts in zip(said, right, strict=True)]
    return dict(zip(_NAMES, np.mean(scores, axis=0).tolist(), strict=True))


def score_doubted_answers(
    said: Sequence[Doubted], right: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Compare answers with the right ones where some questions have none.

    An answer counts as given if its doubt is at most 0; else the model said that there is none,
    which is right where there is none and wrong elsewhere.

    Reference:
        Rajpurkar, Jia and Liang, *Know What You Don't Know: Unanswerable Questions for SQuAD*, ACL
        2018, and its official script.
    """
    import numpy as np

    given, silent, doubts = _compare(said, right)
    scores: dict[str, float] = {}
    for column, name in enumerate(_NAMES):
        chosen = np.where(doubts <= 0, given[:, column], silent[:, column])
        scores[name] = float(chosen.mean())
        scores[f"best_{name}"] = _search(given[:, column], silent[:, column], doubts)
    return scores


def _compare(
    said: Sequence[Doubted], right: Sequence[Sequence[str]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The scores of each text, those of no answer, and the doubts."""
    import numpy as np

    _check(said, right)
    given, silent, doubts = [], [], []
    for number, ((text, doubt), texts) in enumerate(zip(said, right, strict=True)):
        if doubt != doubt:
            raise ValueError(f"question {number} must have a doubt that is a number, got {doubt}")
        # what normalisation leaves nothing of is no answer, as the official script has it
        wanted = tuple(one for one in texts if not _is_blank(one)) or ("",)
        given.append(_score(text, wanted))
        silent.append(_score("", wanted))
        doubts.append(doubt)
    return np.array(given), np.array(silent), np.array(doubts, dtype=np.float64)


def _search(
    given: NDArray[np.float64], silent: NDArray[np.float64], doubts: NDArray[np.float64]
) -> float:
    """The highest mean that a limit of doubt makes."""
    import numpy as np

    order = np.argsort(doubts, kind="stable")
    gains = np.cumsum((given - silent)[order])
    sorted_doubts = doubts[order]
    last = np.append(sorted_doubts[1:] != sorted_doubts[:-1], True)  # equal doubts go together
    most = max(0.0, float(gains[last].max()))  # nothing is gained if no answer is given
    return float(silent.mean() + most / len(doubts))


@lru_cache(maxsize=_REMEMBERED)
def _score(said: str, right: tuple[str, ...]) -> tuple[float, float]:
    """Exact match and F1 of one answer; intervals ask for the same ones over and over."""
    from torchmetrics.functional.text import squad

    # the rules read texts only, but the layout wants an id, and a place for each
    wanted: list[dict[str, Any]] = [
        {"id": "", "answers": {"text": [*right], "answer_start": [0] * len(right)}}
    ]
    scores = squad([{"id": "", "prediction_text": said}], wanted)
    exact_match, f1 = (float(scores[name]) / 100 for name in _NAMES)
    return exact_match, f1


def _is_blank(text: str) -> bool:
    return _score("", (text,))[0] == 1.0


def _check(said: Sequence[Any], right: Sequence[Sequence[str]]) -> None:
    if not len(said) == len(right) > 0:
        raise ValueError(
            f"said and right must have one length above 0, got {len(said)} and {len(right)}"
        )
