"""Areas of neighbouring tokens: features of all of them, each from those of smaller ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-6  # of the variance, so that areas of one token have a gradient


@dataclass(frozen=True)
class Areas:
    """All areas of a sequence, or of a grid whose rows follow each other.

    They come by height, then width, then the position of their first token. Each feature of an area
    is that of an area one row or column smaller combined with that of the row or column. A
    summed-area table over the whole sequence would be as fast and lose all digits where it is long:
    the sum of three tokens is then the difference of two sums of thousands.

    Args:
        max_width: Largest width of an area.
        max_height: Largest height of an area. (default: 1)
        height: Number of rows of the grid. (default: 1)
    """

    max_width: int
    max_height: int = 1
    height: int = 1

    def sums(self, x: Tensor) -> Tensor:
        """Return the sum over each area: [..., L, F] -> [..., A, F]."""
        return self._pool(x, torch.add)

    def means(self, x: Tensor) -> Tensor:
        """Return the mean over each area: [..., L, F] -> [..., A, F]."""
        return self.sums(x) / self.sizes(x).prod(-1, keepdim=True)

    def maxima(self, x: Tensor) -> Tensor:
        """Return the maximum over each area: [..., L, F] -> [..., A, F]."""
        return self._pool(x, torch.maximum)

    def means_and_deviations(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation over each area: [..., L, F] -> [..., A, F] each.

        The variance grows by the update of Chan et al. (1979), and not as E[x²] − E[x]², which
        cancels, and may be negative, where the mean is large.
        """
        state = torch.stack([torch.ones_like(x), x, torch.zeros_like(x)])
        count, mean, squares = self._pool(state, _merge_moments).unbind()
        return mean, (squares / count + EPSILON).sqrt()

    def readable(self, allowed: Tensor) -> Tensor:
        """Tell which areas consist of allowed tokens only: bool [..., L] -> [..., A]."""
        return self._pool(allowed.unsqueeze(-1), torch.logical_and).squeeze(-1)

    def sizes(self, x: Tensor) -> Tensor:
        """Return height and width of each area of the tokens of ``x``: [..., L, F] -> [A, 2]."""
        rows, columns = self.height, x.size(-2) // self.height
        heights = range(1, min(self.max_height, rows) + 1)
        widths = range(1, min(self.max_width, columns) + 1)
        shapes = [(tall, wide) for tall in heights for wide in widths]
        counts = [(rows - tall + 1) * (columns - wide + 1) for tall, wide in shapes]
        repeats = torch.tensor(counts, device=x.device)
        return torch.tensor(shapes, device=x.device).repeat_interleave(repeats, dim=0)

    def _pool(self, x: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Combine the tokens of each area: [..., L, F] -> [..., A, F]."""
        grid = x.reshape(*x.shape[:-2], self.height, -1, x.size(-1))  # [..., rows, columns, F]
        pools, tall = [], grid
        for height in range(1, min(self.max_height, grid.size(-3)) + 1):
            if height > 1:
                tall = combine(tall[..., :-1, :, :], grid[..., height - 1 :, :, :])
            wide = tall
            for width in range(1, min(self.max_width, grid.size(-2)) + 1):
                if width > 1:
                    wide = combine(wide[..., :-1, :], tall[..., width - 1 :, :])
                pools.append(wide.flatten(-3, -2))
        return torch.cat(pools, dim=-2)


def _merge_moments(first: Tensor, second: Tensor) -> Tensor:
    """Merge count, mean and sum of squared deviations of two sets: [3, ...] -> [3, ...]."""
    count, mean, squares = first.unbind()
    other_count, other_mean, other_squares = second.unbind()
    total, gap = count + other_count, other_mean - mean
    share = other_count / total
    return torch.stack(
        [total, mean + gap * share, squares + other_squares + gap.square() * count * share]
    )
