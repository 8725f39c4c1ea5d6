"""Documents packed in one sequence: a token sees its own document only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from jat_graph.patterns.base import KeyRange, Pattern


@dataclass(frozen=True, eq=False)
class Documents(Pattern):
    """A query sees the keys of its own document.

    Args:
        ids: The document of each token, ``[B, L]`` integers, padding included whatever it says.

    Raises:
        ValueError: If the ids are no such tensor.

    Reference:
        Document masks of FlexAttention; "packing" of Krell et al. 2021, "Efficient Sequence Packing
        without Cross-contamination".
    """

    name: ClassVar[str] = "documents"
    spacing: ClassVar[int] = 1  # neighbours mostly share a document
    ids: Tensor

    def __post_init__(self) -> None:
        ids = self.ids
        if not isinstance(ids, Tensor) or ids.dim() != 2 or ids.is_floating_point():
            got = list(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
            raise ValueError(f"ids of documents must be integers [B, L], got {got}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Documents) and torch.equal(self.ids, other.ids)

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.ids.shape)))

    @property
    def spec(self) -> str:
        """None.

        Raises:
            ValueError: Always.
        """
        raise ValueError("documents hold a tensor and have no spec; pass the pattern itself")

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        ids = self.ids if self.ids.device == q.device else self.ids.to(q.device)
        return ids[b, q] == ids[b, k]

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        number = _numbers(self.ids[0])
        index, count = torch.arange(len(number)), int(number.max()) + 1
        start = torch.full((count,), len(number)).scatter_reduce(0, number, index, "amin")[number]
        stop = index.new_zeros(count).scatter_reduce(0, number, index, "amax")[number] + 1
        inside = [
            torch.stack([start[a : z + 1 : step].amin(), stop[a : z + 1 : step].amax()])
            for a, z in zip(first.tolist(), last.tolist(), strict=True)
        ]
        low, high = torch.stack(inside).unbind(-1)
        return [KeyRange(low, high)]

    @property
    def num_sequences(self) -> int:
        return self.ids.size(0)

    def of_sequence(self, index: int) -> Pattern:
        return Documents(self.ids[index : index + 1])

    def at(self, order: Tensor) -> Pattern:
        order = order.to(self.ids.device).expand(self.ids.size(0), -1)
        return Documents(self.ids.gather(1, order))

    def check_size(self, batch: int, length: int) -> None:
        if tuple(self.ids.shape) != (batch, length):
            raise ValueError(
                f"ids of documents must be [{batch}, {length}], got {list(self.ids.shape)}"
            )

    def num_edges(self, length: int, head: int = 0) -> int:
        """Count the squares of the documents' sizes, over all sequences."""
        self.check_size(self.ids.size(0), length)
        return sum(int(_numbers(ids).bincount().square().sum()) for ids in self.ids)


def _numbers(ids: Tensor) -> Tensor:
    """Number the documents of a sequence from 0: ``[L]``."""
    return torch.unique(ids.cpu(), return_inverse=True)[1]  # type: ignore[no-any-return]
