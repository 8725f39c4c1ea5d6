"""Area transformer: a language model that reads spans of characters as well as single ones.

A character says little; a syllable or a word says more. Each layer attends to all spans of up to
``max_width`` characters before the next one: the key of a span is the mean of its keys, its value
the sum of its values, so that spans cost no parameters. With ``max_width=1`` the same model has
ordinary attention, for comparison. :class:`AreaAttention` has all of the paper's forms: rectangles
of a grid, a memory, and keys that know how large an area is and how its tokens spread.

Sources:
    Li et al., *Area Attention*, ICML 2019, which gains most on characters; Tensor2Tensor,
    ``layers/area_attention.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jat_graph.nn import SequenceSelfAttention
from models.blocks import LanguageModel, TransformerLayer

EPSILON = 1e-6  # of the variance, so that areas of one token have a gradient

# How many vectors as wide as a head an area's key is made of; None where it is one as it is.
KEY_MODES = {
    "mean": None,
    "max": None,
    "sample": None,
    "concat": 3,
    "max_concat": 2,
    "sum": 1,
    "sample_concat": 2,
    "sample_sum": 1,
}
VALUE_MODES = ("sum", "mean", "max")


class AreaTransformer(LanguageModel):
    """Logits of the next token at every place.

    Args:
        vocabulary_size: Number of different tokens V.
        max_width: Most tokens of a span.
        channels: Size C of each token's features.
        heads: Number of heads in each layer.
        layers: Number of layers.
        dropout: Dropout probability in and after each part of a layer.
    """

    def __init__(
        self,
        vocabulary_size: int,
        max_width: int = 3,
        channels: int = 128,
        heads: int = 4,
        layers: int = 3,
        dropout: float = 0.0,
    ) -> None:
        layers_made = (
            TransformerLayer(
                AreaAttention(channels, heads, max_width, is_causal=True, dropout=dropout),
                channels,
                dropout,
            )
            for _ in range(layers)
        )
        super().__init__(vocabulary_size, channels, layers_made)


class AreaAttention(SequenceSelfAttention):
    r"""Multi-head attention over areas: all spans, or rectangles, of neighbouring tokens.

    .. math::
        \mathrm{softmax}\left(\mathbf{q}\, \mathbf{k}_r^{\top} / (\tau \sqrt{D}) \right)
        \mathbf{v}_r, \qquad \mathbf{k}_r = \frac{1}{|r|} \sum_{i \in r} \mathbf{k}_i, \qquad
        \mathbf{v}_r = \sum_{i \in r} \mathbf{v}_i

    for every area r of at most ``max_height`` × ``max_width`` tokens; this is the default, other
    modes make keys (see :class:`AreaKey`) and values otherwise. An area can be read only if all its
    tokens can: in a causal layer, if none of them is later than the query. What can read nothing
    gets zeros before the output projection.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H of D = C / H features.
        max_width: Largest width of an area; 1 is ordinary attention.
        max_height: Largest height of an area.
        height: Rows of the grid that is read, row after row. In a sequence, one row, neighbours
            are so among the valid tokens; a grid keeps its padding where it is.
        key_mode: How the key of an area comes about, one of ``KEY_MODES``.
        value_mode: How its value does: ``"sum"``, ``"mean"`` or ``"max"``.
        is_causal: Whether no area with a later token is read.
        top_k: Areas that each query reads, the heaviest, and all that weigh as much as the last of
            them up to the root of the dtype's precision; None means all.
        temperature: τ.
        memory_channels: Size of the samples of a memory; None means C.
        dropout: Dropout probability of the attention weights and of the output.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        max_width: int,
        max_height: int = 1,
        height: int = 1,
        key_mode: str = "mean",
        value_mode: str = "sum",
        is_causal: bool = False,
        top_k: int | None = None,
        temperature: float = 1.0,
        memory_channels: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(channels, heads, dropout=dropout, memory_channels=memory_channels)
        if min(max_width, max_height, height, 1 if top_k is None else top_k) < 1:
            sizes = (max_width, max_height, height, top_k)
            raise ValueError(
                f"max_width, max_height, height and top_k must be at least 1, got {sizes}"
            )
        if value_mode not in VALUE_MODES:
            raise ValueError(f"value_mode must be one of {VALUE_MODES}, got {value_mode!r}")
        self.areas = Areas(max_width, max_height, height)
        self.value_mode, self.is_causal = value_mode, is_causal
        self.top_k, self.temperature = top_k, temperature
        self.area_key = AreaKey(self.head_channels, max_width, max_height, key_mode)

    def forward(
        self,
        x: Tensor,  # [B, N, C], or flat [N_total, C]
        mask: Tensor | None = None,  # bool [B, N], True for tokens
        batch: Tensor | None = None,  # [N_total], beside flat tokens
        *,
        memory: Tensor | None = None,  # [B, M, C_memory]
        memory_mask: Tensor | None = None,  # bool [B, M], True for what there is to read
    ) -> Tensor:
        """Return attention of every token to the areas of its sequence, or of a memory, as ``x``.

        A memory goes with dense tokens in a layer that is not causal. Rows are zero where the mask
        is False.
        """
        if memory is None:
            return super().forward(x, mask, batch)
        if self.is_causal or x.dim() != 3:
            raise ValueError("memory needs a layer that is not causal, and x [B, N, C]")
        self._check_input(x, mask, batch)
        x = x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0)
        if memory_mask is not None:
            memory = memory.masked_fill(~memory_mask.unsqueeze(-1), 0.0)
            if self.areas.height == 1:  # neighbours are so among the valid tokens
                order = (~memory_mask).long().argsort(dim=-1, stable=True)  # [B, M]
                memory = memory.take_along_dim(order.unsqueeze(-1), 1)
                memory_mask = memory_mask.gather(1, order)
        return self.merge(self._read(x, memory, memory_mask), mask)

    def _mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return super()._mix(x, mask) if self.areas.height == 1 else self._read(x, x, mask)

    def _mix_sequence(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self._read(x, x, mask)

    def _read(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Return what the heads read of a memory, ``[B, H, N, D]``; masked tokens are 0."""
        if memory.size(1) % self.areas.height != 0:
            raise ValueError(
                f"height must divide the {memory.size(1)} tokens, got {self.areas.height}"
            )
        query, key, value = self.project(x, memory)  # [B, H, N, D], [B, H, M, D] twice
        wide = value.to(torch.promote_types(value.dtype, torch.float32))
        pools = {"sum": self.areas.sums, "mean": self.areas.means, "max": self.areas.maxima}
        area_key = self.area_key(key, self.areas)  # [B, H, A, D]
        area_value = pools[self.value_mode](wide).to(value.dtype)  # [B, H, A, D]
        visible = None if mask is None else mask[:, None, None]  # [B, 1, 1, M]
        if self.is_causal:
            length = key.size(2)
            earlier = torch.ones(length, length, dtype=torch.bool, device=key.device).tril()
            visible = earlier[None, None] if visible is None else visible & earlier
        readable = None if visible is None else self.areas.readable(visible)  # [B|1, 1, N|1, A]
        return self._attend_areas(query, area_key, area_value, readable)

    def _attend_areas(
        self, query: Tensor, key: Tensor, value: Tensor, readable: Tensor | None
    ) -> Tensor:
        scale = self.head_channels**-0.5 / self.temperature
        dropout = self.dropout.p if self.training else 0.0
        if self.top_k is None:
            return F.scaled_dot_product_attention(query, key, value, readable, dropout, scale=scale)
        scores = query @ key.mT * scale  # [B, H, N, A]
        if readable is not None:
            scores = scores.masked_fill(~readable, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        if readable is not None:
            weights = weights.masked_fill(~readable, 0.0)
        least = weights.topk(min(self.top_k, weights.size(-1))).values[..., -1:]
        # Areas with one maximum have one key: what tells them apart is rounding.
        precision = torch.finfo(weights.dtype)
        heavy = weights.masked_fill(weights < least * (1 - precision.eps**0.5), 0.0)
        # A row that can read nothing sums to 0.
        heavy = heavy / heavy.sum(-1, keepdim=True).clamp(min=precision.tiny)
        return F.dropout(heavy, dropout) @ value


class AreaKey(nn.Module):
    """The keys of areas, made of those of their tokens; the part of area attention that learns.

    Size embeds height and width of an area, μ and σ are mean and standard deviation of its keys,
    and f is a layer of ReLUs and a linear one, shared by the heads (section 3.2 of the paper):

    - ``"mean"`` μ, ``"max"`` the largest of each feature, ``"sample"`` μ + σ ⊙ noise;
    - ``"concat"`` f(μ ‖ σ ‖ size), ``"max_concat"`` f(max ‖ size), ``"sum"`` f(μ + σ + size);
    - ``"sample_concat"`` f(sample ‖ size), ``"sample_sum"`` f(sample + size).

    Noise is drawn in training only; otherwise a sample is μ.
    """

    def __init__(
        self, head_channels: int, max_width: int, max_height: int = 1, mode: str = "mean"
    ) -> None:
        super().__init__()
        if mode not in KEY_MODES:
            raise ValueError(f"key_mode must be one of {', '.join(KEY_MODES)}, got {mode!r}")
        self.mode, parts = mode, KEY_MODES[mode]
        self.embeds_sizes = parts is not None
        if parts is None:
            return
        if head_channels % 2 != 0:
            raise ValueError(f"channels of a head must be even for {mode!r}, got {head_channels}")
        self.height_embedding = nn.Embedding(max_height, head_channels // 2)
        self.width_embedding = nn.Embedding(max_width, head_channels // 2)
        self.hidden = nn.Linear(parts * head_channels, head_channels)
        self.output = nn.Linear(head_channels, head_channels)

    def forward(self, key: Tensor, areas: Areas) -> Tensor:
        """Return a key for each area: ``[..., L, D] -> [..., A, D]``."""
        wide = key.to(torch.promote_types(key.dtype, torch.float32))
        parts = [part.to(key.dtype) for part in self._features(wide, areas)]
        if not self.embeds_sizes:
            return parts[0]
        heights, widths = (areas.sizes(key) - 1).unbind(-1)
        size = torch.cat([self.height_embedding(heights), self.width_embedding(widths)], dim=-1)
        parts.append(size.expand_as(parts[0]))
        joined = torch.cat(parts, -1) if self.mode.endswith("concat") else sum(parts[1:], parts[0])
        return self.output(F.relu(self.hidden(joined)))

    def _features(self, key: Tensor, areas: Areas) -> list[Tensor]:
        """Return what the tokens tell about an area's key: one or two of ``[..., A, D]``."""
        if self.mode.startswith("max"):
            return [areas.maxima(key)]
        samples = self.mode.startswith("sample")
        if self.mode == "mean" or (samples and not self.training):
            return [areas.means(key)]
        mean, deviation = areas.means_and_deviations(key)
        return [mean + deviation * torch.randn_like(deviation)] if samples else [mean, deviation]


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
        """Return the sum over each area: ``[..., L, F] -> [..., A, F]``."""
        return self._pool(x, torch.add)

    def means(self, x: Tensor) -> Tensor:
        """Return the mean over each area: ``[..., L, F] -> [..., A, F]``."""
        return self.sums(x) / self.sizes(x).prod(-1, keepdim=True)

    def maxima(self, x: Tensor) -> Tensor:
        """Return the maximum over each area: ``[..., L, F] -> [..., A, F]``."""
        return self._pool(x, torch.maximum)

    def means_and_deviations(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation over each area: ``[..., L, F] -> [..., A, F]`` each.

        The variance grows by the update of Chan et al. (1979), and not as E[x²] − E[x]², which
        cancels, and may be negative, where the mean is large.
        """
        state = torch.stack([torch.ones_like(x), x, torch.zeros_like(x)])
        count, mean, squares = self._pool(state, merge_moments).unbind()
        return mean, (squares / count + EPSILON).sqrt()

    def readable(self, allowed: Tensor) -> Tensor:
        """Tell which areas consist of allowed tokens only: bool ``[..., L] -> [..., A]``."""
        return self._pool(allowed.unsqueeze(-1), torch.logical_and).squeeze(-1)

    def sizes(self, x: Tensor) -> Tensor:
        """Return height and width of each area of the tokens: ``[..., L, F] -> [A, 2]``."""
        rows, columns = self.height, x.size(-2) // self.height
        heights = range(1, min(self.max_height, rows) + 1)
        widths = range(1, min(self.max_width, columns) + 1)
        shapes = [(tall, wide) for tall in heights for wide in widths]
        counts = [(rows - tall + 1) * (columns - wide + 1) for tall, wide in shapes]
        repeats = torch.tensor(counts, device=x.device)
        return torch.tensor(shapes, device=x.device).repeat_interleave(repeats, dim=0)

    def _pool(self, x: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Combine the tokens of each area: ``[..., L, F] -> [..., A, F]``."""
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


def merge_moments(first: Tensor, second: Tensor) -> Tensor:
    """Merge count, mean and sum of squared deviations of two sets: ``[3, ...] -> [3, ...]``."""
    count, mean, squares = first.unbind()
    other_count, other_mean, other_squares = second.unbind()
    total, gap = count + other_count, other_mean - mean
    share = other_count / total
    return torch.stack(
        [total, mean + gap * share, squares + other_squares + gap.square() * count * share]
    )
