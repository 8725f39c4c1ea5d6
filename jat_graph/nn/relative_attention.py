"""Self-attention whose scores know how far apart two tokens are."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.adjacency.scores import attention_scores
from jat_graph.attention.heads import softmax_rows
from jat_graph.checks.numbers import check_choice, check_flag, check_integer
from jat_graph.checks.tensors import default_scale
from jat_graph.nn.self_attention import SequenceSelfAttention


class RelativeAttention(SequenceSelfAttention):
    r"""Multi-head self-attention with a learned score for each distance, as in Music Transformer.

    .. math::
        \mathrm{softmax}\left((\mathbf{Q} \mathbf{K}^{\top} + \mathbf{S}^{rel}) / \sqrt{D} \right)
        \mathbf{V}, \qquad S^{rel}_{ij} = \mathbf{q}_i \cdot \mathbf{E}_{i - j}

    Each head has its own table E. Its row r is the distance ``max_distance − 1 − r``, so that a
    bidirectional table goes on to the later tokens after the middle. The products with E are
    brought into place by skewing: the relative term needs O(L · D) memory beside the scores.

    With ``block`` a token reads its own block and the one before, and without ``is_causal`` the one
    after, too; memory then grows linearly with L. Places count valid tokens.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H.
        max_distance: How many distances, from 0 on, have a row of their own.
        is_causal: A token reads itself and earlier ones; the table then has ``max_distance`` rows,
            else ``2 * max_distance - 1``. (default: False)
        far: ``"clip"`` gives farther tokens the row of the farthest, as Shaw et al. do; ``"zero"``
            gives them no relative score, as Tensor2Tensor does. (default: "clip")
        block: Tokens of a block. (default: None, every token reads all)
        head_channels: Size D of each head. (default: None, which means ``channels // heads``)
        qkv_bias: Add a bias to queries, keys and values. (default: False)
        attn_out_bias: Add a bias to the output. (default: True)
        dropout: Dropout probability of the output. (default: 0.0)

    Raises:
        ValueError: If a size or ``far`` does not fit.

    Shapes:
        - **input:** token features ``[B, N, C]`` with a bool mask ``[B, N]`` *(optional)*, or
          ``[N_total, C]`` with a batch vector ``[N_total]`` *(optional)*
        - **output:** as the input

    Reference:
        Huang et al., *Music Transformer: Generating Music with Long-Term Structure*, ICLR 2019;
        Shaw et al., *Self-Attention with Relative Position Representations*, NAACL 2018.
    """

    shown = ("max_distance", "is_causal", "far", "block")

    def __init__(
        self,
        channels: int,
        heads: int,
        max_distance: int,
        is_causal: bool = False,
        far: str = "clip",
        block: int | None = None,
        head_channels: int | None = None,
        qkv_bias: bool = False,
        attn_out_bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(channels, heads, head_channels, qkv_bias, attn_out_bias, dropout)
        self.max_distance = check_integer("max_distance", max_distance, least=1)
        self.is_causal = check_flag("is_causal", is_causal)
        self.far = check_choice("far", far, ("clip", "zero"))
        self.block = None if block is None else check_integer("block", block, least=1)
        rows = max_distance if is_causal else 2 * max_distance - 1
        self.table = torch.nn.Parameter(torch.empty(heads, rows, self.head_channels))
        self._reset_table()

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        super().reset_parameters()
        self._reset_table()

    def _reset_table(self) -> None:
        torch.nn.init.normal_(self.table, std=default_scale(self.head_channels))

    def _mix_sequence(self, x: Tensor, mask: Tensor | None) -> Tensor:
        length = x.size(1)
        block, before, after = self._reach(length)
        query, key, value = self.project(x, x)
        queries = _windows(query, block, 0, 0)  # [B, H, N / block, block, D]
        keys, values = (_windows(tensor, block, before, after) for tensor in (key, value))
        real = x.new_ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        visible = _windows(real[:, None, :, None], block, before, after).mT
        scale = default_scale(self.head_channels)
        relative = attention_scores(queries, self._rows(block, before, after), scale)
        scores = attention_scores(queries, keys, scale) + skew(relative, keys.size(-2))
        rows = softmax_rows(scores, visible, self.is_causal).to(values.dtype)
        return (rows @ values).flatten(2, 3)[:, :, :length]

    def _reach(self, length: int) -> tuple[int, int, int]:
        """Return how long a block is, and how far its tokens read before and after it."""
        block = length if self.block is None else min(self.block, length)
        before = 0 if block == length else block
        return block, before, 0 if self.is_causal else before

    def _rows(self, block: int, before: int, after: int) -> Tensor:
        """Return E of every distance between a block and its keys, ``[H, 1, distances, D]``."""
        nearest = 0 if self.is_causal else 1 - block - after
        distance = torch.arange(before + block - 1, nearest - 1, -1, device=self.table.device)
        row = self.max_distance - 1 - distance
        table = self.table[:, row.clamp(0, self.table.size(1) - 1)]
        if self.far == "zero":
            outside = distance.abs() >= self.max_distance
            table = table.masked_fill(outside.unsqueeze(-1), 0.0)
        return table.unsqueeze(1)


def skew(relative: Tensor, num_keys: int) -> Tensor:  # [..., n, distances] -> [..., n, num_keys]
    """Move products of queries and distances to the keys that are so far away.

    Query i of n has its own distance to key j in column ``j − i + n − 1``. A column of zeros in
    front makes each row one longer than the step from a row to the next, so that reading the
    numbers in rows of the old length moves row i by i to the right (Huang et al. 2019, 3.4.1).
    """
    queries, distances = relative.shape[-2:]
    shifted = F.pad(relative, (1, 0)).flatten(-2)[..., queries:]
    return shifted.view(*shifted.shape[:-1], queries, distances)[..., :num_keys]


def _windows(tensor: Tensor, block: int, before: int, after: int) -> Tensor:
    """Cut tokens into blocks with neighbours: ``[B, H, N, D] -> [B, H, blocks, window, D]``."""
    missing = -tensor.size(2) % block
    padded = F.pad(tensor, (0, 0, before, missing + after))
    return padded.unfold(2, before + block + after, block).mT
