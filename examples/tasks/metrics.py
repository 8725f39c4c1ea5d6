"""Measures of what models say: classes, numbers, spans of words, answers, surprise."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef, precision_recall_fscore_support
from torchmetrics.functional.text import squad

OUTSIDE = "O"
_REMEMBERED = 1 << 18  # pairs of answers: those of a few runs on SQuAD


def score_classes(
    said: Sequence[Any], right: Sequence[Any], names: Sequence[str] = ("accuracy",)
) -> dict[str, float]:
    """Classes; where each entry is a list, as the answers to one question, all in it count.

    Reference:
        Khashabi et al., *Looking Beyond the Surface*, NAACL 2018, section 5, for both measures of
        lists: ``f1`` over answers, and ``exact_match`` over questions.
    """
    flat_said, flat_right = (np.concatenate([*map(np.atleast_1d, side)]) for side in (said, right))
    measures: dict[str, Callable[[], float]] = {
        "accuracy": lambda: float((flat_said == flat_right).mean()),
        "exact_match": lambda: float(np.mean([*map(np.array_equal, said, right)])),
        "f1": lambda: _f1(flat_said, flat_right, "binary"),
        "macro_f1": lambda: _f1(flat_said, flat_right, "macro"),
        "matthews": lambda: _correlation(matthews_corrcoef, flat_said, flat_right),
    }
    return {name: measures[name]() for name in names}


def score_sizes(said: Sequence[int], right: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Classes, of which the right ones come with a size: accuracy of all and of each size."""
    labels, sizes = np.asarray(right).T
    hits = np.asarray(said) == labels
    by_size = {f"accuracy_{size}": float(hits[sizes == size].mean()) for size in np.unique(sizes)}
    return {"accuracy": float(hits.mean())} | by_size


def score_numbers(said: Sequence[float], right: Sequence[float]) -> dict[str, float]:
    """Outputs of a regression."""
    outputs, targets = np.asarray(said, np.float64), np.asarray(right, np.float64)
    return {
        "pearson": _correlation(lambda *both: pearsonr(*both).statistic, outputs, targets),
        "spearman": _correlation(lambda *both: spearmanr(*both).statistic, outputs, targets),
        "mse": float(((outputs - targets) ** 2).mean()),
    }


def score_spans(said: Sequence[Any], right: Sequence[Any]) -> dict[str, float]:
    """Spans of each sentence; one is right if its type and both of its ends are."""
    found, wanted = (
        {(number, *span) for number, spans in enumerate(side) for span in spans}
        for side in (said, right)
    )
    spans = sorted(found | wanted)
    if not spans:  # which scikit-learn has no word for
        return dict.fromkeys(("f1", "precision", "recall"), 0.0)
    precision, recall, f1, _ = precision_recall_fscore_support(
        [span in wanted for span in spans],
        [span in found for span in spans],
        average="binary",
        zero_division=0.0,
    )
    return {"f1": float(f1), "precision": float(precision), "recall": float(recall)}


def find_spans(tags: Sequence[str]) -> list[list[Any]]:
    """Read tags as conlleval does, so that IOB1 and BIO, well formed or not, mean something.

    A span begins at each ``B-``, and at an ``I-`` that does not follow a word of its type. It is
    its type, its first word, and the word after its last.

    Reference:
        Tjong Kim Sang and De Meulder, *Introduction to the CoNLL-2003 Shared Task*, CoNLL 2003.
    """
    spans: list[list[Any]] = []
    previous = OUTSIDE
    for index, tag in enumerate(tags):
        if tag.startswith("I-") and previous[2:] == tag[2:]:
            spans[-1][2] = index + 1
        elif tag != OUTSIDE:
            spans.append([tag[2:], index, index + 1])
        previous = tag
    return spans


def write_tags(spans: Sequence[Sequence[Any]], length: int) -> list[str]:
    """Write spans as BIO; the way back from :func:`find_spans`."""
    tags = [OUTSIDE] * length
    for name, start, stop in spans:
        tags[start:stop] = [f"B-{name}", *[f"I-{name}"] * (stop - start - 1)]
    return tags


def score_answers(said: Sequence[str], right: Sequence[Sequence[str]]) -> dict[str, float]:
    """Answers; letters' case, punctuation and articles do not count.

    Reference:
        Rajpurkar et al., *SQuAD: 100,000+ Questions for Machine Comprehension of Text*, EMNLP 2016.
    """
    scores = [_compare(text, tuple(texts)) for text, texts in zip(said, right, strict=True)]
    exact_match, f1 = np.mean(scores, axis=0).tolist()
    return {"f1": f1, "exact_match": exact_match}


def score_doubted_answers(
    said: Sequence[Sequence[Any]], right: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Pairs of an answer and by how much the model rather says that there is none.

    An answer counts as given if its doubt is at most 0. ``best_f1`` and ``best_exact_match`` are at
    the limit that is best on these very questions, as the official script has it: too high.

    Reference:
        Rajpurkar, Jia and Liang, *Know What You Don't Know: Unanswerable Questions for SQuAD*, ACL
        2018, and its official script.
    """
    wanted = [tuple(text for text in texts if not _is_blank(text)) or ("",) for texts in right]
    given = np.array([_compare(text, own) for (text, _), own in zip(said, wanted, strict=True)])
    silent = np.array([_compare("", own) for own in wanted])
    doubts = np.array([doubt for _, doubt in said], dtype=np.float64)
    order = np.argsort(doubts, kind="stable")
    last = np.append(np.diff(doubts[order]) != 0, True)  # equal doubts go together
    scores: dict[str, float] = {}
    for column, name in enumerate(("exact_match", "f1")):
        gains = np.cumsum((given - silent)[order, column])[last]
        scores[name] = float(np.where(doubts <= 0, given[:, column], silent[:, column]).mean())
        scores[f"best_{name}"] = float(silent[:, column].mean() + max(0.0, gains.max()) / len(said))
    return scores


def score_losses(losses: NDArray[Any], units: int | None = None) -> dict[str, float]:
    """Losses of tokens, −ln p, and how many characters these stand for: one each, if not told.

    Perplexity depends on how a tokenizer cuts; bits for each character or token do not.
    """
    total = float(losses.sum(dtype=np.float64))
    with np.errstate(over="ignore"):
        perplexity = float(np.exp(total / len(losses)))
    bits = total / math.log(2) / (units or len(losses))
    return {"perplexity": perplexity, "bits_per_character": bits, "bits_per_token": bits}


def _f1(said: NDArray[Any], right: NDArray[Any], average: str) -> float:
    return float(f1_score(right, said, average=average, zero_division=0.0))


def _correlation(
    compute: Callable[[NDArray[Any], NDArray[Any]], float], said: NDArray[Any], right: NDArray[Any]
) -> float:
    """Settle what a correlation leaves undefined.

    A model that always says the same knows nothing of the targets and gets 0. Constant targets are
    no fault of the model, and nothing can be said: NaN.
    """
    if (right == right[0]).all():
        return math.nan
    if (said == said[0]).all():
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns of outputs that are nearly constant
        return float(compute(said, right))


@lru_cache(maxsize=_REMEMBERED)
def _compare(said: str, right: tuple[str, ...]) -> tuple[float, float]:
    """Exact match and F1 of one answer; intervals ask for the same ones over and over."""
    answers: Any = {"text": [*right], "answer_start": [0] * len(right)}
    scores = squad([{"id": "", "prediction_text": said}], [{"id": "", "answers": answers}])
    return float(scores["exact_match"]) / 100, float(scores["f1"]) / 100


def _is_blank(text: str) -> bool:
    """Tell whether normalisation leaves nothing of a text: it is no answer."""
    return _compare("", (text,))[0] == 1.0
