"""Triplet attention, A³: the score of a query is its volume with two keys, not its angle to one."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.checks.numbers import check_choice, check_integer
from jat_graph.nn.self_attention import SelfAttention

PAIRS = ("partner", "sum", "max")
PARTNERS = 5  # kinds of partners: shuffled, next, second next, mirrored, swapped


class TripletAttention(SelfAttention):
    r"""Self-attention whose scores are the volumes that a query and two keys span.

    .. math::
        \mathrm{softmax}_l \left( \mathbf{q}_i \cdot
        (\mathbf{k}_j \times \mathbf{k}^{\prime}_l) / \sqrt{3} \right) \mathbf{v}_l

    The cross product needs three dimensions: the features of all heads, taken three by three, are
    H · D / 3 heads. The second keys have a projection of their own, ``key2``.

    Token l stands for a pair of keys:

    - ``"partner"``: its second key k′ and the key of its partner j: by fifths of the heads, a
      random one, the next one, the second next, its mirror image, its neighbour;
    - ``"sum"`` and ``"max"``: :math:`\mathbf{k}_j \times \mathbf{k}_l` summed, or the largest of
      each feature, over all tokens j. ``"max"`` holds L² products at once.

    Unlike in the released code, padding is masked and is nobody's partner, scores are divided by
    √3, the dimension of these heads, instead of √D, and random partners depend on ``seed`` and the
    number of valid tokens alone. There is no causal form: partners come later as well as before.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H of D features; H · D must be a multiple of 3.
        pairs: How keys come together. (default: ``"partner"``)
        seed: What the random partners are drawn from. (default: 0)
        head_channels, attn_out_bias, dropout: As for :class:`SelfAttention`, whose shapes these
            are, too.
        qkv_bias: Add a bias to queries, keys, second keys and values. (default: False)

    Raises:
        ValueError: If a size does not fit.

    Reference:
        Zhou et al., *Triplet Attention: Rethinking the Similarity in Transformers*, KDD 2021; the
        released code, ``modeling_bert.py`` of zhouhaoyi/TripletAttention.
    """

    shown = ("head_channels", "pairs")

    def __init__(
        self,
        channels: int,
        heads: int,
        pairs: str = "partner",
        seed: int = 0,
        head_channels: int | None = None,
        qkv_bias: bool = False,
        attn_out_bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(channels, heads, head_channels, qkv_bias, attn_out_bias, dropout)
        self.pairs = check_choice("pairs", pairs, PAIRS)
        self.seed = check_integer("seed", seed, least=0)
        inner_channels = heads * self.head_channels
        if inner_channels % 3 != 0:
            raise ValueError(f"heads · head_channels must be a multiple of 3, got {inner_channels}")
        self.key2 = (
            torch.nn.Linear(channels, inner_channels, bias=qkv_bias) if pairs == "partner" else None
        )

    def _mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        second = None if self.key2 is None else self._split_heads(self.key2(x))
        return triplet_heads(
            *self.project(x, x), second, pairs=self.pairs, mask=mask, seed=self.seed
        )


def triplet_heads(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    value: Tensor,  # [B, H, L, D]
    second_key: Tensor | None,  # [B, H, L, D] for "partner", else None
    *,
    pairs: str,
    mask: Tensor | None,  # valid tokens, bool [B, L]
    seed: int,
    dropout_p: float = 0.0,
) -> Tensor:  # [B, H, L, D]
    """Return what triplet heads read: those of the layer and of attached models."""
    if mask is not None:  # neighbours and mirror images are so among the valid tokens
        order = (~mask).long().argsort(dim=-1, stable=True)  # [B, L]: valid ones, then padding
        mask = mask.gather(1, order)
        index = order[:, None, :, None]
        key, value = key.take_along_dim(index, 2), value.take_along_dim(index, 2)
        second_key = None if second_key is None else second_key.take_along_dim(index, 2)
    first, values = _by_threes(key), _by_threes(value)
    # In half precision a cross product of nearly parallel keys would be rounding.
    wide = first.to(torch.promote_types(first.dtype, torch.float32))
    if second_key is None:
        crossed = _cross_all(wide, mask, pairs)
    else:
        crossed = _cross_partners(wide, _by_threes(second_key).to(wide.dtype), mask, seed)
    out = F.scaled_dot_product_attention(
        _by_threes(query),
        crossed.to(first.dtype),  # [B, H · D / 3, L, 3]
        values,
        None if mask is None else mask[:, None, None],
        dropout_p,
        scale=1 / math.sqrt(3),
    )
    return out.transpose(1, 2).reshape(query.transpose(1, 2).shape).transpose(1, 2)


def _by_threes(x: Tensor) -> Tensor:
    """Return the features of all heads three by three: [B, H, L, D] -> [B, H · D / 3, L, 3]."""
    batch, _, length, _ = x.shape
    return x.transpose(1, 2).reshape(batch, length, -1, 3).transpose(1, 2)


def _cross_all(key: Tensor, mask: Tensor | None, pairs: str) -> Tensor:
    """Return every key's products with all keys, summed or the largest: [B, H', L, 3]."""
    hidden = None if mask is None else ~mask[:, None, :, None]  # [B, 1, L, 1]
    if pairs == "sum":
        valid = key if hidden is None else key.masked_fill(hidden, 0.0)
        summed: Tensor = torch.linalg.cross(valid.sum(-2, keepdim=True).expand_as(key), key)
        return summed
    # [B, H', l, j, 3]
    products: Tensor = torch.linalg.cross(key.unsqueeze(-3), key.unsqueeze(-2))
    if hidden is None:
        return products.amax(-2)
    products = products.masked_fill(hidden.unsqueeze(2), torch.finfo(key.dtype).min)
    # A sequence of padding has no largest product; nobody reads it either.
    return products.amax(-2).masked_fill(hidden, 0.0)


def _cross_partners(first: Tensor, second: Tensor, mask: Tensor | None, seed: int) -> Tensor:
    """Return the product of each token's partner's key and its own second one: [B, H', L, 3]."""
    batch, heads, length = first.shape[:3]
    if mask is None:
        count = torch.full((batch, 1), length, device=first.device)
    else:
        count = mask.sum(-1, keepdim=True)
    # A number for each rank, on the CPU; the first n give the random order of n tokens.
    generator = torch.Generator().manual_seed(seed)
    shuffle = torch.rand(length, dtype=torch.float64, generator=generator, device="cpu")
    shuffle = shuffle.to(first.device)
    rank = torch.arange(length, device=first.device).expand(batch, -1)  # [B, L]
    valid = rank < count
    shuffled = shuffle.where(valid, torch.inf).argsort(dim=-1)
    total = count.clamp(min=1)
    swapped = rank + 1 - 2 * (rank % 2)
    kinds = (shuffled, (rank + 1) % total, (rank + 2) % total, count - 1 - rank, swapped)
    # Itself where there is padding.
    found = [torch.where(valid & (kind < count), kind, rank) for kind in kinds]
    partners = torch.stack(found, dim=1)  # [B, 5, L]
    head = torch.arange(heads, device=first.device)
    kind = (head // max(heads // PARTNERS, 1)).clamp(max=PARTNERS - 1)
    partner = first.take_along_dim(partners[:, kind].unsqueeze(-1), 2)
    crossed: Tensor = torch.linalg.cross(partner, second)
    return crossed
