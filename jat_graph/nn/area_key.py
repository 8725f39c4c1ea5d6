"""What the key of an area is made of."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.checks.numbers import check_choice
from jat_graph.nn.areas import Areas

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


class AreaKey(torch.nn.Module):
    """The keys of areas, made of those of their tokens; the part of area attention that learns.

    Args:
        head_channels: Size D of each head; even where the mode embeds sizes.
        max_width: Largest width of an area.
        max_height: Largest height of an area. (default: 1)
        mode: One of the modes of :class:`AreaAttention`. (default: ``"mean"``)

    Raises:
        ValueError: If the mode is unknown, or D is odd and the mode embeds sizes.

    Shapes:
        - **input:** ``[..., L, D]``
        - **output:** ``[..., A, D]``

    Reference:
        Li et al. (2019), section 3.2.
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
            module.reset_parameters()  # type: ignore[operator]

    def forward(
        self,
        key: Tensor,  # Keys of the tokens [..., L, D]
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
