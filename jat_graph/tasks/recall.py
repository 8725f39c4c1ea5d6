"""Recall: values that stand elsewhere in a sequence, asked of tokens that are ids, not text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.checks.numbers import check_integer
from jat_graph.tasks.base import Task

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from numpy.typing import NDArray


@dataclass(frozen=True)
class IdSequences:
    """Sequences of tokens, each of which is up to two names and a value; 0 is none.

    Args:
        first: The name of a token; only padding, which is at the end, has none.
        second: The other name of a token that holds two.
        value: The value that a token carries.
        answer: The value that is asked of a token.
        size: How large a sequence is, as its task counts.

    Shapes:
        - **first**, **second**, **value**, **answer:** ``[N, L]``
        - **size:** ``[N]``
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    value: NDArray[np.int64]
    answer: NDArray[np.int64]
    size: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class RecallTask(Task):
    """Tell values that other tokens of a sequence carry; see its kinds.

    The tokens are ids that no tokenizer reads: a model adds up the embeddings of what a token has.
    Values are drawn independently of each other, so that nothing but the right token tells them.
    A dataset has the columns ``first``, ``second``, ``value``, ``answer`` and ``size``, see
    :class:`IdSequences`.

    Args:
        values: Number of values, each as likely. (default: 8)
        train_size: Sequences to train on; every size is there as often. (default: 10000)
        validation_size: Sequences to validate on, likewise. (default: 1000)
        test_size: Sequences to test on, likewise. (default: 1000)
        seed: Decides what is drawn. (default: 0)
    """

    splits: tuple[str, ...] = ("train", "validation", "test")
    primary_metric: str = "accuracy"
    values: int = 8
    train_size: int = 10_000
    validation_size: int = 1000
    test_size: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("values", "train_size", "validation_size", "test_size"):
            check_integer(name, getattr(self, name), least=1)

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """The sizes that sequences have."""

    @property
    @abstractmethod
    def num_names(self) -> int:
        """Number of names, which have the ids from 1 on."""

    @abstractmethod
    def candidates(self, size: int) -> int:
        """Say how many values of a sequence may be the answer for all that a name itself tells.

        Args:
            size: Size of the sequence.

        Returns:
            The number.
        """

    @abstractmethod
    def draw(self, sizes: NDArray[np.int64], source: np.random.Generator) -> IdSequences:
        """Draw sequences.

        Args:
            sizes: The size of each.
            source: What they are drawn from.

        Returns:
            The sequences.
        """

    def sequences(self, split: str) -> IdSequences:
        """Return a split, the same whatever the size of the others.

        Args:
            split: Name of a split.

        Returns:
            Its sequences.

        Raises:
            ValueError: If there is no such split.
        """
        import numpy as np

        self.chosen_splits([split])
        sizes = np.resize(np.array(self.sizes), getattr(self, f"{split}_size"))
        return self.draw(sizes, np.random.default_rng([*split.encode(), self.seed]))

    def chance(self, size: int) -> float:
        """Say how often it is right to guess the commonest of the values that may be the answer.

        That is all that is in reach of a model that sees all values and not whose they are.

        Args:
            size: Size of the sequence.

        Returns:
            The expected share, exact but for rounding.
        """
        return share_of_commonest(self.candidates(size), self.values)

    def measure(self, said: NDArray[np.int64], asked: IdSequences) -> dict[str, float]:
        """Compare what a model said with what is right.

        Args:
            said: A value for each token; those of tokens that are not asked do not count.
            asked: What it was said of.

        Shapes:
            said: ``[N, L]``.

        Returns:
            ``accuracy``, the share of right answers, and ``accuracy_1`` and so on for each size.
        """
        import numpy as np

        hits = ((said == asked.answer) & (asked.answer > 0)).sum(1)
        answers = (asked.answer > 0).sum(1)
        by_size = {
            f"accuracy_{size}": float(hits[here].sum() / answers[here].sum())
            for size in np.unique(asked.size).tolist()
            if (here := asked.size == size).any()
        }
        return {"accuracy": float(hits.sum() / answers.sum())} | by_size

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Make the splits; nothing is read."""
        from datasets import Dataset

        return {split: Dataset.from_list(_rows(self.sequences(split))) for split in splits}


@dataclass(frozen=True, kw_only=True)
class PartnersTask(RecallTask):
    """Tell the value that one's partner carries.

    A sequence of m pairs has 3 m tokens in random order: 2 m names, no two alike, each with a
    value, and m hubs, each of which holds two of the names, its partners. Every name is asked for
    the value of its partner, which it shares nothing with but their hub. So a name has to find the
    hub, and there the partner: two steps, for which plain attention takes two layers.

    Sizes are 1 to ``pairs``: where all sequences are of five pairs or more, it is hardly learnt.

    Args:
        pairs: The greatest number of pairs in a sequence. (default: 5)
        names: Number of names. (default: None, four for each pair)
        values: Number of values, each as likely. (default: 8)
        train_size: Sequences to train on; every size is there as often. (default: 10000)
        validation_size: Sequences to validate on, likewise. (default: 1000)
        test_size: Sequences to test on, likewise. (default: 1000)
        seed: Decides what is drawn. (default: 0)
    """

    name: str = "partners"
    pairs: int = 5
    names: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("pairs", self.pairs, least=1)
        check_integer("names", self.num_names, least=2 * self.pairs)

    @property
    def sizes(self) -> tuple[int, ...]:
        """1 to the greatest number of pairs."""
        return tuple(range(1, self.pairs + 1))

    @property
    def num_names(self) -> int:
        """Number of names, which have the ids from 1 on."""
        return 4 * self.pairs if self.names is None else self.names

    def candidates(self, size: int) -> int:
        """All but a name's own."""
        return 2 * size - 1

    def draw(self, sizes: NDArray[np.int64], source: np.random.Generator) -> IdSequences:
        """Draw pairs of names, then the values, then the order of the tokens."""
        import numpy as np

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
        return _shuffled(drawn, source)


@dataclass(frozen=True, kw_only=True)
class FarRecallTask(RecallTask):
    """Tell values that stand far back.

    A sequence is the names with their values, then filler, then the same names in another order,
    without values. These are asked for their values: a window that is no longer than the filler
    shows none of them, and to guess is right once in as many times as there are values.

    Args:
        told: Number of names in a sequence, no two alike. (default: 8)
        names: Number of names to draw from. (default: 32)
        filler: Tokens of filler. (default: 48)
        filler_words: Number of different tokens of filler, which have the ids after the names.
            (default: 16)
        values: Number of values, each as likely. (default: 8)
        train_size: Sequences to train on. (default: 10000)
        validation_size: Sequences to validate on. (default: 1000)
        test_size: Sequences to test on. (default: 1000)
        seed: Decides what is drawn. (default: 0)
    """

    name: str = "farrecall"
    told: int = 8
    names: int = 32
    filler: int = 48
    filler_words: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("told", self.told, least=1)
        check_integer("names", self.names, least=self.told)
        check_integer("filler", self.filler, least=0)
        check_integer("filler_words", self.filler_words, least=1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of names in a sequence."""
        return (self.told,)

    @property
    def num_names(self) -> int:
        """Number of names and of words of filler."""
        return self.names + self.filler_words

    def candidates(self, size: int) -> int:
        """All: the name that asks tells nothing."""
        return size

    def draw(self, sizes: NDArray[np.int64], source: np.random.Generator) -> IdSequences:
        """Draw names and values, the filler between, and the order of the questions."""
        import numpy as np

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


@cache
def share_of_commonest(drawn: int, values: int) -> float:
    """The expected share of the commonest among values that are drawn independently."""
    above = (values**drawn - _ways(drawn, values, most) for most in range(drawn))
    return float(sum(above) / (drawn * values**drawn))


def _ways(drawn: int, values: int, most: int) -> int:
    """In how many ways values can be drawn so that none is there more often than ``most``."""
    ways = [1] + [0] * drawn  # by the number of draws, of no values yet
    for _ in range(values):
        ways = [
            sum(comb(n, k) * ways[n - k] for k in range(min(n, most) + 1)) for n in range(drawn + 1)
        ]
    return ways[drawn]


def _draw_names(
    names: int, shape: tuple[int, ...], source: np.random.Generator
) -> NDArray[np.int64]:
    """Draw the names of each sequence, no two alike."""
    import numpy as np

    wanted = int(np.prod(shape[1:]))
    order = source.random((shape[0], names)).argsort(1)
    return order[:, :wanted].reshape(shape) + 1


def _joined(*parts: NDArray[np.int64]) -> NDArray[np.int64]:  # [N, …] each, to [N, L]
    import numpy as np

    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _shuffled(drawn: IdSequences, source: np.random.Generator) -> IdSequences:
    """The same sequences with their tokens in random order, padding last."""
    import numpy as np

    order = (source.random(drawn.first.shape) + (drawn.first == 0)).argsort(1)
    mixed = {
        name: np.take_along_axis(getattr(drawn, name), order, 1)
        for name in ("first", "second", "value", "answer")
    }
    return replace(drawn, **mixed)


def _rows(drawn: IdSequences) -> list[dict[str, Any]]:
    """The sequences as rows of a dataset, without padding."""
    lengths: Sequence[int] = (drawn.first > 0).sum(1).tolist()
    columns = ("first", "second", "value", "answer")
    return [
        {name: getattr(drawn, name)[row, :length].tolist() for name in columns}
        | {"size": int(drawn.size[row])}
        for row, length in enumerate(lengths)
    ]
