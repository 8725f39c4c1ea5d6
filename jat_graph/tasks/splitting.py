"""Splits of data that have none: drawn from a seed, with every class in its share."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence


def stratified_split(
    classes: Sequence[Hashable], shares: Mapping[str, float], rest: str = "train"
) -> dict[str, list[int]]:
    """Draw splits in which each class has its share, rounded; the same for the same classes."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for row, name in enumerate(classes):
        members[name].append(row)
    splits: dict[str, list[int]] = {rest: [], **{split: [] for split in shares}}
    for name, rows in members.items():
        count = len(rows)
        random.Random(f"split {name}").shuffle(rows)  # a text is hashed the same way everywhere
        for split, share in shares.items():
            taken = round(share * count)
            splits[split] += rows[:taken]
            del rows[:taken]
        splits[rest] += rows
    return {split: sorted(rows) for split, rows in splits.items()}
