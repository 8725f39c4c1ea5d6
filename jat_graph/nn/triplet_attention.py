"""Triplet attention, A³, as a layer."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.attention.triplets import triplet_heads
from jat_graph.checks.numbers import check_choice, check_integer
from jat_graph.nn.self_attention import SelfAttention
from jat_graph.triplet_config import PAIRS


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
        head_channels: Size D of each head. (default: None, which means ``channels // heads``)
        qkv_bias: Add a bias to queries, keys, second keys and values. (default: False)
        attn_out_bias: Add a bias to the output. (default: True)
        dropout: Dropout probability of the output. (default: 0.0)

    Raises:
        ValueError: If a size does not fit.

    Shapes:
        - **input:** node features ``[B, N, C]`` with a bool mask ``[B, N]`` *(optional)*, or
          ``[N_total, C]`` with a batch vector ``[N_total]`` *(optional)*
        - **output:** as the input

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
