"""Measures of classes, numbers and losses, from scikit-learn and scipy where they have them.

Classes may belong together in groups, as the answers to one question.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # the names of all tasks are in the command line's help, which needs no numpy
    from numpy.typing import NDArray

EXACT_MATCH = "exact_match"

Array: TypeAlias = "NDArray[Any]"
Measure: TypeAlias = Callable[["Array", "Array"], float]


def decide(predictions: Array, labels: Array, classes: int | None) -> Array:  # [N]
    """The classes that logits say, or the numbers of a regression: [N]."""
    _check(predictions, labels, classes)
    if classes is None:
        return predictions.reshape(-1).astype("float64")
    classes_said: Array = predictions.argmax(axis=1)
    return classes_said


def score(
    names: tuple[str, ...],
    said: Array | Sequence[Any],  # [N]
    labels: Array | Sequence[Any],  # [N]
) -> dict[str, float]:
    """Compare classes with labels, or a regression's outputs with its targets."""
    import numpy as np

    if len(said) == 0 or len(said) != len(labels):
        raise ValueError(
            f"said and labels must have one length above 0, got {len(said)} and {len(labels)}"
        )
    arrays = np.asarray(said), np.asarray(labels)
    return {name: float(MEASURES[name](*arrays)) for name in names}


def score_groups(
    names: tuple[str, ...], said: Sequence[Sequence[Any]], labels: Sequence[Sequence[Any]]
) -> dict[str, float]:
    """Compare classes with labels that belong together in groups.

    Reference:
        Khashabi et al., *Looking Beyond the Surface: A Challenge Set for Reading Comprehension over
        Multiple Sentences*, NAACL 2018, section 5, for ``f1`` over answers (F1a there).
    """
    if [len(group) for group in said] != [len(group) for group in labels]:
        raise ValueError("said and labels must have groups of the same lengths, got others")
    flat = ([one for group in groups for one in group] for groups in (said, labels))
    scores = score(tuple(name for name in names if name != EXACT_MATCH), *flat)
    if EXACT_MATCH in names:
        whole = [list(one) == list(other) for one, other in zip(said, labels, strict=True)]
        scores[EXACT_MATCH] = sum(whole) / len(whole)
    return {name: scores[name] for name in names}


def put_together(
    groups: Iterable[Hashable], *columns: Iterable[Any]
) -> tuple[list[list[Any]], ...]:
    """The columns of rows with a list for each group, in the order in which groups appear."""
    members: dict[Hashable, list[tuple[Any, ...]]] = defaultdict(list)
    for group, *values in zip(groups, *columns, strict=True):
        members[group].append(tuple(values))
    return tuple(
        [[row[place] for row in rows] for rows in members.values()] for place in range(len(columns))
    )


def score_losses(losses: Array, units: int | None, unit: str) -> dict[str, float]:  # [N]
    """Perplexity of a language model by its losses, and bits for each unit."""
    import numpy as np

    if losses.ndim != 1 or len(losses) == 0:
        raise ValueError(f"losses must have shape [N] with N > 0, got {list(losses.shape)}")
    if not (losses >= 0).all():
        first = losses[~(losses >= 0)][0]
        raise ValueError(f"losses must be 0 or more, got {first}")
    count = len(losses) if units is None else units
    if count < 1:
        raise ValueError(f"units must be 1 or more, got {units}")
    total = float(losses.sum(dtype=np.float64))
    with np.errstate(over="ignore"):
        perplexity = float(np.exp(total / len(losses)))
    return {"perplexity": perplexity, f"bits_per_{unit}": total / math.log(2) / count}


def accuracy(predicted: Array, labels: Array) -> float:  # [N]
    """The share of right answers."""
    return float((predicted == labels).mean())


def f1(predicted: Array, labels: Array, average: str = "binary") -> float:  # [N]
    """The harmonic mean of precision and recall of class 1; ``"macro"``: the mean over the classes.

    Reference:
        scikit-learn's ``f1_score``.
    """
    from sklearn.metrics import f1_score

    return float(f1_score(labels, predicted, average=average, zero_division=0.0))


macro_f1 = partial(f1, average="macro")


def matthews(predicted: Array, labels: Array) -> float:  # [N]
    """Matthews' correlation coefficient.

    Reference:
        scikit-learn's ``matthews_corrcoef``.
    """
    from sklearn.metrics import matthews_corrcoef

    return _correlation(lambda: matthews_corrcoef(labels, predicted), predicted, labels)


def pearson(outputs: Array, targets: Array) -> float:  # [N]
    """Pearson's correlation coefficient.

    Reference:
        scipy's ``pearsonr``.
    """
    from scipy.stats import pearsonr

    return _correlation(lambda: pearsonr(outputs, targets).statistic, outputs, targets)


def spearman(outputs: Array, targets: Array) -> float:  # [N]
    """Spearman's rank correlation coefficient.

    Reference:
        scipy's ``spearmanr``.
    """
    from scipy.stats import spearmanr

    return _correlation(lambda: spearmanr(outputs, targets).statistic, outputs, targets)


MEASURES: dict[str, Measure] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def _correlation(compute: Callable[[], float], outputs: Array, targets: Array) -> float:
    """Settle what correlation leaves undefined.

    A model that always says the same knows nothing of the targets and gets 0, as scikit-learn has
    it for Matthews. Constant targets are no fault of the model, and nothing can be said: NaN.
    """
    if (targets == targets[0]).all():
        return math.nan
    if (outputs == outputs[0]).all():
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns of outputs that are nearly constant
        return float(compute())


def _check(predictions: Array, labels: Array, classes: int | None) -> None:
    """Refuse what cannot be scored."""
    import numpy as np

    if labels.ndim != 1 or len(labels) == 0:
        raise ValueError(f"labels must have shape [N] with N > 0, got {list(labels.shape)}")
    count = len(labels)
    allowed = [(count,), (count, 1)] if classes is None else [(count, classes)]
    if predictions.shape not in allowed:
        wanted = " or ".join(str(list(shape)) for shape in allowed)
        raise ValueError(f"predictions must have shape {wanted}, got {list(predictions.shape)}")
    bad = np.flatnonzero(~np.isfinite(predictions.reshape(count, -1)).all(axis=1))
    if len(bad):
        first = predictions.reshape(count, -1)[bad[0]].tolist()
        raise ValueError(f"predictions must be finite, got {first} for example {bad[0]}")
    if classes is not None and not np.isin(labels, range(classes)).all():
        first = labels[~np.isin(labels, range(classes))][0]
        raise ValueError(f"labels must be class numbers from 0 to {classes - 1}, got {first}")
    if classes is None and not np.isfinite(labels).all():
        raise ValueError("labels must be finite, got NaN or infinity")
