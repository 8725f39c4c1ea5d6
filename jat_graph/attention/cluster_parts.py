"""What the three parts of attention by clusters share: around, best keys, the rest.

They read some heads of one sequence, in float32 or float64, and add up what they read in one
softmax. Backward takes the same weights, e to the scores less a shift, and the sum of all, so that
the gradients of the parts just add up, too. Each part is in a file of its own.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

NOTHING = -1e30  # score where nothing was read; infinity would give NaN

Dropout: TypeAlias = "tuple[float, torch.Generator] | None"  # share that dropout keeps


class Tokens:
    """Some heads of one sequence: whole blocks, and room for one more on both sides of the keys.

    Keys and values beyond the queries are those of global tokens, and stand behind this room.
    """

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, block: int) -> None:
        self.heads, self.length, _ = query.shape
        self.num_global = key.size(1) - self.length
        self.margin, self.block = block, block or self.length
        self.blocks = -(-self.length // self.block)
        self.query = self._filled(query, 0)
        self.key = self._filled(key, self.margin)
        # One more column of ones sums the weights, too.
        self.value = self._filled(value, self.margin, 1)
        self.of_tokens(self.value)[..., -1] = 1.0
        self.of_global(self.value)[..., -1] = 1.0

    def _filled(self, x: Tensor, margin: int, columns: int = 0) -> Tensor:
        length, width = self.blocks * self.block + 2 * margin, x.size(-1)
        filled = x.new_empty(len(x), length + x.size(1) - self.length, width + columns)
        filled[:, :margin] = 0.0
        filled[:, margin + self.length : length] = 0.0
        filled[:, margin : margin + self.length, :width] = x[:, : self.length]
        filled[:, length:, :width] = x[:, self.length :]
        return filled

    def of_tokens(self, x: Tensor) -> Tensor:  # [H, any, D] -> [H, n, D]
        """Cut off what is no token."""
        return self.whole(x)[:, : self.length]

    def of_global(self, x: Tensor) -> Tensor:  # [H, any, D] -> [H, g, D]
        """Return what is of global tokens, of keys and values."""
        return x[:, x.size(1) - self.num_global :]

    def of_all(self, x: Tensor) -> Tensor:  # [H, any, D] -> [H, n + g, D]
        """Return what is of tokens and of global ones, a view where there are none."""
        own = self.of_tokens(x)
        return torch.cat([own, self.of_global(x)], dim=1) if self.num_global else own

    def filled(
        self, x: Tensor, value: float = 0.0
    ) -> Tensor:  # [H, n, D] -> [H, blocks · block, D]
        """Fill up the last block."""
        fill = self.blocks * self.block - self.length
        return F.pad(x, (0, 0, 0, fill), value=value) if fill else x

    def whole(self, x: Tensor) -> Tensor:  # [H, any, D] -> [H, blocks · block, D]
        """Cut the room at both sides off keys and values, if there is any."""
        length = self.blocks * self.block
        return x if x.size(1) == length else x[:, self.margin : self.margin + length]

    def blocked(self, x: Tensor) -> Tensor:  # [H, any, D] -> [H, blocks, block, D]
        """Return the blocks of tokens, a view."""
        return self.whole(x).view(len(x), self.blocks, self.block, x.size(-1))


class Sums(NamedTuple):
    """An online softmax: sums with weights e to the scores less a shift."""

    total: Tensor  # of weights times values, and of weights last, [H, blocks · block, Dv + 1]
    shift: Tensor  # [H, blocks · block, 1]

    @classmethod
    def nothing(cls, tokens: Tokens) -> Sums:
        """Return the sums before anything is read."""
        size = tokens.query.shape[:2]
        shift = tokens.query.new_full((*size, 1), NOTHING)
        return cls(tokens.query.new_zeros(*size, tokens.value.size(-1)), shift)

    def add(self, scores: Tensor, value: Tensor, mask: Tensor | None) -> None:
        """Read values by their scores, which are lost."""
        largest = torch.maximum(scores.amax(-1, keepdim=True), self.shift)
        self.total.mul_(self.shift.sub_(largest).exp_())
        weights = scores.sub_(largest).exp_()
        self.total.add_(read_values(weights, value, mask))
        self.shift.copy_(largest)


class Gradients:
    """What comes back to some heads, and what they have passed on so far."""

    def __init__(
        self,
        tokens: Tokens,
        grad: Tensor,  # of the outputs, [H, n, Dv]
        output: Tensor,  # [H, n, Dv]
        shift: Tensor,  # [H, n]
        weight: Tensor,  # [H, n]
    ) -> None:
        grad = grad / weight.unsqueeze(-1)  # from now on weights are e to the scores less the shift
        self.grad = tokens.filled(grad)
        self.delta = tokens.filled((grad * output).sum(-1, keepdim=True))
        self.shift = tokens.filled(shift.unsqueeze(-1), torch.inf)  # what is filled weighs 0
        self.query, self.key, self.value = (
            torch.zeros_like(x) for x in (tokens.query, tokens.key, tokens.value)
        )


def numbers_at_a_time(device: torch.device) -> int:
    """Return how many numbers the cache of a core holds, 1 MiB in float32, or keep a GPU busy."""
    return 2**26 if device.type == "cuda" else 2**18


def draw_mask(weights: Tensor, kept: Dropout) -> Tensor | None:
    """Return what weights are multiplied by in dropout; backward draws the same again."""
    if kept is None:
        return None
    share, generator = kept
    return torch.empty_like(weights).bernoulli_(share, generator=generator).div_(share or 1.0)


def masked(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Return weights after dropout; these themselves where there is none."""
    return weights if mask is None else weights * mask


def read_values(weights: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Return the weighted sum of values, and of weights, which dropout leaves alone."""
    if mask is None:
        return weights @ value
    total = weights * mask @ value
    total[..., -1:] = weights @ value[..., -1:]
    return total


def rows(x: Tensor, index: Tensor) -> Tensor:  # [H, any, D], [a, b] -> [a, b, D]
    """Return rows of all heads by number."""
    return x.flatten(0, 1).index_select(0, index.flatten()).view(*index.shape, x.size(-1))


def differentiate_scores(grads: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Return the gradients by scores, less their weights; the last column knows no dropout."""
    by_score = grads @ value.mT
    if mask is not None:
        last = grads[..., -1:]
        by_score = by_score.sub_(last).mul_(mask.view_as(by_score)).add_(last)
    return by_score
