"""Measures of classes that belong together in groups, as the answers to one question."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from jat_graph.tasks.metrics import score

EXACT_MATCH = "exact_match"


def score_groups(
    names: tuple[str, ...], said: Sequence[Sequence[Any]], labels: Sequence[Sequence[Any]]
) -> dict[str, float]:
    """Compare classes with labels that belong together in groups, as the answers to one question.

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
    """Put together the rows of each group."""
    members: dict[Hashable, list[tuple[Any, ...]]] = {}
    for group, *values in zip(groups, *columns, strict=True):
        members.setdefault(group, []).append(tuple(values))
    return tuple(
        [[values[place] for values in group] for group in members.values()]
        for place in range(len(columns))
    )
