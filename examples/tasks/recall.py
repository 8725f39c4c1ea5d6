"""Recall: values that stand elsewhere in a sequence, asked of tokens that are ids, not text.

A model adds up the embeddings of what a token has: up to two names and a value. Values are drawn
independently of each other, so that nothing but the right token tells them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray

from examples.tasks.base import Splits
from jat_graph.core.numbers import check_integer

Ids: TypeAlias = NDArray[np.int64]
COLUMNS = ("first", "second", "value", "answer")


@dataclass(frozen=True)
class IdSequences:
    """Sequences of tokens, each of which is up to two names and a value; 0 is none."""

    first: Ids  # [N, L], its name; only padding, which is at the end, has none
    second: Ids  # [N, L], the other name of a token that holds two
    value: Ids  # [N, L], what it carries
    answer: Ids  # [N, L], the value that is asked of it
    size: Ids  # [N], how large a sequence is, as its task counts


@dataclass(frozen=True, kw_only=True)
class RecallTask:
    """Tell values that other tokens of a sequence carry.

    Each kind has the ``sizes`` of its sequences; ``num_names``, which have the ids from 1 on; and
    ``draw(sizes, source)``.
    """

    name: str = ""
    kind: str = "ids"
    splits: tuple[str, ...] = ("train", "validation", "test")
    metrics: tuple[str, ...] = ("accuracy",)
    primary_metric: str = "accuracy"
    greater_is_better: bool = True
    values: int = 8  # each as likely
    train_size: int = 10_000  # sequences, every size as often
    validation_size: int = 1000
    test_size: int = 1000
    seed: int = 0  # decides what is drawn

    def __post_init__(self) -> None:
        for name in ("values", "train_size", "validation_size", "test_size"):
            check_integer(name, getattr(self, name), least=1)

    def sequences(self, split: str) -> IdSequences:
        """Return a split, the same whatever the size of the others."""
        if split not in self.splits:
            raise ValueError(f"split must be one of {', '.join(self.splits)}, got {split!r}")
        sizes = np.resize(np.array(self.sizes), getattr(self, f"{split}_size"))
        return self.draw(sizes, np.random.default_rng([*split.encode(), self.seed]))

    def measure(self, said: Ids, asked: IdSequences) -> dict[str, float]:
        """Compare a value for each token, ``[N, L]``, with what is right, in all and by size."""
        hits = ((said == asked.answer) & (asked.answer > 0)).sum(1)
        answers = (asked.answer > 0).sum(1)
        groups = {f"accuracy_{size}": asked.size == size for size in np.unique(asked.size).tolist()}
        groups = {"accuracy": asked.size > 0} | groups
        return {name: float(hits[own].sum() / answers[own].sum()) for name, own in groups.items()}

    def load(self, data_dir: str | Path | None, names: Sequence[str] | None = None) -> Splits:
        """Make splits as data sets, without padding; nothing is read."""
        found = {}
        for name in names or self.splits:
            drawn = self.sequences(name)
            columns: dict[str, Any] = {}
            for column in COLUMNS:
                pairs = zip(getattr(drawn, column), drawn.first > 0, strict=True)
                columns[column] = [own[real] for own, real in pairs]
            found[name] = Dataset.from_dict({**columns, "size": drawn.size})
        return found


@dataclass(frozen=True, kw_only=True)
class PartnersTask(RecallTask):
    """Tell the value that one's partner carries.

    A sequence of m pairs has 3 m tokens in random order: 2 m names, no two alike, each with a
    value, and m hubs, each of which holds two of the names, its partners. Every name is asked for
    the value of its partner, which it shares nothing with but their hub.

    Sizes are 1 to ``pairs``: where all sequences are of five pairs or more, it is hardly learned.
    """

    name: str = "partners"
    pairs: int = 5  # at most, in a sequence
    names: int | None = None  # to draw from: None, four for each pair

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("pairs", self.pairs, least=1)
        check_integer("names", self.num_names, least=2 * self.pairs)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(range(1, self.pairs + 1))

    @property
    def num_names(self) -> int:
        return 4 * self.pairs if self.names is None else self.names

    def draw(self, sizes: Ids, source: np.random.Generator) -> IdSequences:
        """Draw pairs of names, then the values, then the order of the tokens."""
        most = int(sizes.max())
        names = _draw_names(self.num_names, (len(sizes), most, 2), source)
        names *= np.arange(most)[:, None] < sizes[:, None, None]  # a smaller sequence has fewer
        values = source.integers(1, self.values, names.shape, endpoint=True) * (names > 0)
        hubs = np.zeros_like(names[..., 0])
        drawn = IdSequences(
            first=_joined(names, names[..., 0]),
            second=_joined(0 * names, names[..., 1]),
            value=_joined(values, hubs),
            answer=_joined(values[..., ::-1], hubs),
            size=sizes,
        )
        order = (source.random(drawn.first.shape) + (drawn.first == 0)).argsort(1)  # padding last
        mixed = {name: np.take_along_axis(getattr(drawn, name), order, 1) for name in COLUMNS}
        return replace(drawn, **mixed)


@dataclass(frozen=True, kw_only=True)
class FarRecallTask(RecallTask):
    """Tell values that stand far back.

    A sequence is the names with their values, then filler, then the same names in another order,
    without values. These are asked for theirs: a window no longer than the filler shows none.
    """

    name: str = "farrecall"
    told: int = 8  # names in a sequence, no two alike
    names: int = 32  # to draw from
    filler: int = 48  # tokens
    filler_words: int = 16  # different ones, which have the ids after the names

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in {"told": 1, "names": self.told, "filler": 0, "filler_words": 1}.items():
            check_integer(name, getattr(self, name), least=least)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.told,)

    @property
    def num_names(self) -> int:
        return self.names + self.filler_words

    def draw(self, sizes: Ids, source: np.random.Generator) -> IdSequences:
        """Draw names and values, the filler between, and the order of the questions."""
        count = len(sizes)
        names = _draw_names(self.names, (count, self.told), source)
        values = source.integers(1, self.values, names.shape, endpoint=True)
        words = source.integers(self.filler_words, size=(count, self.filler)) + self.names + 1
        order = source.random(names.shape).argsort(1)
        asked, right = (np.take_along_axis(one, order, 1) for one in (names, values))
        first = _joined(names, words, asked)
        return IdSequences(
            first=first,
            second=0 * first,
            value=_joined(values, 0 * words, 0 * asked),
            answer=_joined(0 * names, 0 * words, right),
            size=sizes,
        )


def _draw_names(names: int, shape: tuple[int, ...], source: np.random.Generator) -> Ids:
    """Draw the names of each sequence, no two alike."""
    wanted = int(np.prod(shape[1:]))
    order = source.random((shape[0], names)).argsort(1)
    return order[:, :wanted].reshape(shape) + 1


def _joined(*parts: Ids) -> Ids:  # [N, …] each, to [N, L]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
