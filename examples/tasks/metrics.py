"""Measures of what models say: classes, numbers, spans of words, answers, surprise.

Reference:
    Khashabi et al., *Looking Beyond the Surface*, NAACL 2018, section 5, for classes in lists;
    Tjong Kim Sang and De Meulder, *Introduction to the CoNLL-2003 Shared Task*, 2003, for spans;
    Rajpurkar et al., *SQuAD*, EMNLP 2016, and Rajpurkar, Jia and Liang, *Know What You Don't Know*,
    ACL 2018, with its official script, for answers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef
from torchmetrics.functional.text import squad

OUTSIDE = "O"
_REMEMBERED = 1 << 18  # pairs of answers: those of a few runs on SQuAD


def score_classes(
    said: Sequence[Any], right: Sequence[Any], names: Sequence[str] = ("accuracy",)
) -> dict[str, float]:
    """Classes; of lists, as answers to one question, F1 is over entries, exact match over lists."""
    flat_said, flat_right = (np.concatenate([*map(np.atleast_1d, side)]) for side in (said, right))
    f1 = partial(f1_score, flat_right, flat_said, zero_division=0.0)
    measures: dict[str, Callable[[], Any]] = {
        "accuracy": (flat_said == flat_right).mean,
        "exact_match": lambda: np.mean([*map(np.array_equal, said, right)]),
        "f1": partial(f1, average="binary"),
        "macro_f1": partial(f1, average="macro"),
        "matthews": lambda: _correlation(matthews_corrcoef, flat_said, flat_right),
    }
    return {name: float(measures[name]()) for name in names}


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
    pairs = zip(said, right, strict=True)
    hits = sum(span in wanted for own, wanted in pairs for span in own)
    found, wanted = (sum(map(len, side)) for side in (said, right))
    return {
        "f1": 2 * hits / max(1, found + wanted),
        "precision": hits / max(1, found),
        "recall": hits / max(1, wanted),
    }


def find_spans(tags: Sequence[str]) -> list[list[Any]]:
    """Read type, start and stop of spans as conlleval does, from IOB1 or BIO, even badly formed."""
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
    """Write spans as BIO."""
    tags = [OUTSIDE] * length
    for name, start, stop in spans:
        tags[start:stop] = [f"B-{name}", *[f"I-{name}"] * (stop - start - 1)]
    return tags


def score_answers(said: Sequence[str], right: Sequence[Sequence[str]]) -> dict[str, float]:
    """Answers; letters' case, punctuation and articles do not count."""
    scores = [_compare(text, tuple(texts)) for text, texts in zip(said, right, strict=True)]
    exact_match, f1 = np.mean(scores, axis=0).tolist()
    return {"f1": f1, "exact_match": exact_match}


def score_doubted_answers(
    said: Sequence[Sequence[Any]], right: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Pairs of an answer and by how much the model rather says that there is none.

    An answer counts as given if its doubt is at most 0; ``best_`` scores are at the best limit.
    """
    # Where normalisation leaves nothing of a text, it is no answer.
    wanted = [tuple(t for t in texts if _compare("", (t,))[0] < 1) or ("",) for texts in right]
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
    """Losses of tokens, −ln p, and bits of each of so many characters, whatever cut them."""
    total = float(losses.sum(dtype=np.float64))
    with np.errstate(over="ignore"):
        perplexity = float(np.exp(total / len(losses)))
    bits = total / math.log(2) / (units or len(losses))
    return {"perplexity": perplexity, "bits_per_character": bits, "bits_per_token": bits}


def _correlation(compute: Callable[..., Any], said: NDArray[Any], right: NDArray[Any]) -> float:
    """Settle what is undefined: who always says the same gets 0, and constant targets give NaN."""
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
