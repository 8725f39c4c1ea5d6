"""Areas of neighbouring tokens: their features, each from those of smaller ones, and their keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.inits import reset

from jat_graph.checks.numbers import check_choice

EPSILON = 1e-6  # of the variance, so that areas of one token have a gradient

# How many vectors as wide as a head an area's key is made of; None where it is one as it is.
_PARTS = {
    "mean": None,
    "max": None,
    "sample": None,
    "concat": 3,
    "max_concat": 2,
    "sum": 1,
    "sample_concat": 2,
    "sample_sum": 1,
}
KEY_MODES = tuple(_PARTS)


@dataclass(frozen=True)
class Areas:
    """All areas of a sequence, or of a grid whose rows follow each other.

    They come by height, then width, then the position of their first token. Each feature of an area
    is that of an area one row or column smaller combined with that of the row or column. A
    summed-area table over the whole sequence would be as fast and lose all digits where it is long:
    the sum of three tokens is then the difference of two sums of thousands.
    """

    max_width: int  # of an area
    max_height: int = 1  # of an area
    height: int = 1  # of the grid

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


class AreaKey(torch.nn.Module):
    """The keys of areas, made of those of their tokens; the part of area attention that learns.

    D is even where the mode, one of those of :class:`AreaAttention`, embeds sizes (Li et al. 2019,
    section 3.2).
    """

    def __init__(
        self, head_channels: int, max_width: int, max_height: int = 1, mode: str = "mean"
    ) -> None:
        super().__init__()
        self.mode = check_choice("key_mode", mode, KEY_MODES)
        parts = _PARTS[mode]
        self.embeds_sizes = parts is not None
        if parts is None:
            return
        if head_channels % 2 != 0:
            raise ValueError(
                f"channels of a head must be even for key_mode {mode!r}, got {head_channels}"
            )
        self.height_embedding = torch.nn.Embedding(max_height, head_channels // 2)
        self.width_embedding = torch.nn.Embedding(max_width, head_channels // 2)
        self.hidden = torch.nn.Linear(parts * head_channels, head_channels)
        self.output = torch.nn.Linear(head_channels, head_channels)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for module in self.children():
            reset(module)

    def forward(
        self,
        key: Tensor,  # of the tokens, [..., L, D]
        areas: Areas,
        generator: torch.Generator | None = None,
    ) -> Tensor:  # [..., A, D]
        """Return a key for each area."""
        wide = key.to(torch.promote_types(key.dtype, torch.float32))
        parts = [part.to(key.dtype) for part in self._features(wide, areas, generator)]
        if not self.embeds_sizes:
            return parts[0]
        parts.append(self._embedded_sizes(key, areas).expand_as(parts[0]))
        joined = torch.cat(parts, -1) if self.mode.endswith("concat") else sum(parts[1:], parts[0])
        result: Tensor = self.output(F.relu(self.hidden(joined)))
        return result

    def _features(
        self, key: Tensor, areas: Areas, generator: torch.Generator | None
    ) -> list[Tensor]:
        """Return what the tokens tell about an area's key: one or two of [..., A, D]."""
        if self.mode.startswith("max"):
            return [areas.maxima(key)]
        samples = self.mode.startswith("sample")
        if self.mode == "mean" or (samples and not self.training):
            return [areas.means(key)]
        mean, deviation = areas.means_and_deviations(key)
        if not samples:
            return [mean, deviation]
        noise = torch.empty_like(deviation).normal_(generator=generator)
        return [mean + deviation * noise]

    def _embedded_sizes(self, key: Tensor, areas: Areas) -> Tensor:
        heights, widths = (areas.sizes(key) - 1).unbind(-1)
        return torch.cat([self.height_embedding(heights), self.width_embedding(widths)], dim=-1)
