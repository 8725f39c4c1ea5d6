"""Measures of answers to questions, from torchmetrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def score_answers(
    predictions: Mapping[str, str], answers: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Compare answers with the right ones: letters' case, punctuation and articles do not count.

    Args:
        predictions: An answer to each question, by the question's id.
        answers: The texts that count as right, by the question's id.

    Returns:
        ``exact_match``, the share of answers that are right, and ``f1``, the mean over questions of
        the harmonic mean of precision and recall of an answer's words; each for the best of the
        right answers, and from 0 to 1.

    Raises:
        ValueError: If there is no question, or one lacks its answer or the right ones.

    Reference:
        Rajpurkar et al., *SQuAD: 100,000+ Questions for Machine Comprehension of Text*, EMNLP 2016;
        torchmetrics' ``SQuAD``.
    """
    from torchmetrics.functional.text import squad

    _check(predictions, answers)
    said = [{"id": name, "prediction_text": text} for name, text in predictions.items()]
    right: list[dict[str, Any]] = [
        # the rules read texts only, but the layout wants a place for each
        {"id": name, "answers": {"text": [*texts], "answer_start": [0] * len(texts)}}
        for name, texts in answers.items()
    ]
    return {name: float(value) / 100 for name, value in squad(said, right).items()}


def _check(predictions: Mapping[str, str], answers: Mapping[str, Sequence[str]]) -> None:
    if not answers:
        raise ValueError("answers must hold a question, got none")
    for name in sorted(answers.keys() ^ predictions.keys()):
        lacks = "a prediction" if name in answers else "right answers"
        raise ValueError(f"question {name!r} must have {lacks}, got none")
    for name, texts in answers.items():
        if not texts:
            raise ValueError(f"question {name!r} must have right answers, got none")
