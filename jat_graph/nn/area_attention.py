"""Area attention: a query attends to whole areas of neighbouring tokens beside single ones."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.checks.numbers import check_choice, check_flag, check_inside, check_integer
from jat_graph.checks.tensors import default_scale
from jat_graph.nn.areas import AreaKey, Areas
from jat_graph.nn.self_attention import (
    SequenceSelfAttention,
    check_token_mask,
    clean_tokens,
    softmax_where,
)

VALUE_MODES = ("sum", "mean", "max")


class AreaAttention(SequenceSelfAttention):
    r"""Multi-head attention over areas: all spans, or rectangles, of neighbouring tokens.

    .. math::
        \mathrm{softmax}\left(\mathbf{q}\, \mathbf{k}_r^{\top} / (\tau \sqrt{D}) \right)
        \mathbf{v}_r, \qquad \mathbf{k}_r = \frac{1}{|r|} \sum_{i \in r} \mathbf{k}_i, \qquad
        \mathbf{v}_r = \sum_{i \in r} \mathbf{v}_i

    for every area r of at most ``max_height`` × ``max_width`` tokens; this is the default, other
    modes make keys and values of areas otherwise. An area can be read only if all its tokens can:
    in a causal layer, if none of them is later than the query. What can read nothing gets zeros
    before the output projection.

    The modes of keys, where size embeds height and width of an area, μ and σ are mean and standard
    deviation of its keys, and f is a layer of ReLUs and a linear one, shared by the heads:

    - ``"mean"`` μ, ``"max"`` the largest of each feature, ``"sample"`` μ + σ ⊙ noise;
    - ``"concat"`` f(μ ‖ σ ‖ size), ``"max_concat"`` f(max ‖ size), ``"sum"`` f(μ + σ + size);
    - ``"sample_concat"`` f(sample ‖ size), ``"sample_sum"`` f(sample + size).

    Noise is drawn in training only; otherwise a sample is μ.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H.
        max_width: Largest width of an area; 1 is ordinary attention.
        max_height: Largest height of an area. (default: 1)
        height: Number of rows of the grid that is read, row after row. In a sequence, one row,
            neighbours are so among the valid tokens; a grid keeps its padding where it is.
            (default: 1)
        key_mode: How the key of an area comes about. (default: ``"mean"``)
        value_mode: How its value does: ``"sum"``, ``"mean"`` or ``"max"``. (default: ``"sum"``)
        is_causal: Read no area with a later token. (default: False)
        top_k: Read only the heaviest areas of each query, and all that weigh as much as the last
            of them up to the root of the dtype's precision. (default: None, all)
        temperature: τ. (default: 1.0)
        head_channels: Size D of each head. (default: None, which means ``channels // heads``)
        memory_channels: Size of the samples of a memory. (default: None, which means C)
        qkv_bias: Add a bias to queries, keys and values. (default: False)
        attn_out_bias: Add a bias to the output. (default: True)
        dropout: Dropout probability of the attention weights and of the output. (default: 0.0)
        generator: What noise is drawn from, on the layer's device. (default: None, torch's own)

    Raises:
        ValueError: If a size or a mode does not fit.

    Shapes:
        - **input:** node features ``[B, N, C]`` with a bool mask ``[B, N]`` *(optional)*, or
          ``[N_total, C]`` with a batch vector ``[N_total]`` *(optional)*; a memory
          ``[B, M, C_memory]`` with a mask ``[B, M]`` *(optional)*
        - **output:** as the node features

    Reference:
        Li et al., *Area Attention*, ICML 2019; Tensor2Tensor, ``layers/area_attention.py``.
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
        head_channels: int | None = None,
        memory_channels: int | None = None,
        qkv_bias: bool = False,
        attn_out_bias: bool = True,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            channels, heads, head_channels, qkv_bias, attn_out_bias, dropout, memory_channels
        )
        self.areas = Areas(
            check_integer("max_width", max_width, least=1),
            check_integer("max_height", max_height, least=1),
            check_integer("height", height, least=1),
        )
        self.value_mode = check_choice("value_mode", value_mode, VALUE_MODES)
        self.is_causal = check_flag("is_causal", is_causal)
        self.top_k = None if top_k is None else check_integer("top_k", top_k, least=1)
        self.temperature = check_inside("temperature", temperature, 0.0, math.inf)
        self.area_key = AreaKey(self.head_channels, max_width, max_height, key_mode)
        self.generator = generator

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Return attention of every node to the areas of its graph, or of a memory.

        Args:
            x: Node features, dense ``[B, N, C]`` or flat ``[N_total, C]``; dense with a memory.
            mask: With dense features, bool ``[B, N]``, True for nodes. (default: None, all)
            batch: With flat features, the graph of each node. (default: None, one graph)
            memory: What is read, ``[B, M, C_memory]``. (default: None, ``x`` itself)
            memory_mask: Bool ``[B, M]``, True for what there is to read. (default: None, all)

        Returns:
            Node features as ``x``; zeros where the mask is False.

        Raises:
            ValueError: If a shape or dtype does not fit, or a token has a NaN or an infinity.
        """
        if memory is None:
            self._check_self_attention(memory_mask)
            return super().forward(x, mask, batch)
        self._check_input(x, mask, batch)
        self._check_memory(x, memory, memory_mask)
        memory = clean_tokens("memory", memory, memory_mask)
        if memory_mask is not None and self.areas.height == 1:
            order = (~memory_mask).long().argsort(dim=-1, stable=True)  # [B, M]
            memory = memory.take_along_dim(order.unsqueeze(-1), 1)
            memory_mask = memory_mask.gather(1, order)
        return self.merge(self._read(clean_tokens("x", x, mask), memory, memory_mask), mask)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.channels}, heads={self.heads}, "
            f"max_width={self.areas.max_width}, max_height={self.areas.max_height}, "
            f"key_mode={self.area_key.mode!r}, value_mode={self.value_mode!r})"
        )

    def _mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return super()._mix(x, mask) if self.areas.height == 1 else self._read(x, x, mask)

    def _mix_sequence(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self._read(x, x, mask)

    def _read(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Return what the heads read of a clean memory: [B, H, N, D]."""
        if memory.size(1) % self.areas.height != 0:
            raise ValueError(
                f"height must divide the {memory.size(1)} tokens, got {self.areas.height}"
            )
        query, key, value = self.project(x, memory)
        area_key = self.area_key(key, self.areas, self.generator)
        wide = value.to(torch.promote_types(value.dtype, torch.float32))
        pools = {"sum": self.areas.sums, "mean": self.areas.means, "max": self.areas.maxima}
        area_value = pools[self.value_mode](wide).to(value.dtype)
        return self._attend_areas(query, area_key, area_value, self._readable(mask, key))

    def _attend_areas(
        self, query: Tensor, key: Tensor, value: Tensor, readable: Tensor | None
    ) -> Tensor:
        scale = default_scale(query.size(-1)) / self.temperature
        dropout = self.dropout.p if self.training else 0.0
        if self.top_k is None:
            return F.scaled_dot_product_attention(query, key, value, readable, dropout, scale=scale)
        weights = softmax_where(query @ key.mT * scale, readable, dim=-1)  # [B, H, N, A]
        least = weights.topk(min(self.top_k, weights.size(-1))).values[..., -1:]
        # Areas with one maximum have one key: what tells them apart is rounding.
        precision = torch.finfo(weights.dtype)
        heavy = weights.masked_fill(weights < least * (1 - precision.eps**0.5), 0.0)
        # A row that can read nothing sums to 0.
        heavy = heavy / heavy.sum(-1, keepdim=True).clamp(min=precision.tiny)
        return F.dropout(heavy, dropout) @ value

    def _readable(self, mask: Tensor | None, key: Tensor) -> Tensor | None:
        """Return which areas each query may read, [B|1, 1, N|1, A], or None if all."""
        tokens = None if mask is None else mask[:, None, None, :]  # [B, 1, 1, M]
        if self.is_causal:
            length = key.size(2)
            earlier = torch.ones(length, length, dtype=torch.bool, device=key.device).tril()
            tokens = earlier[None, None] if tokens is None else tokens & earlier
        return None if tokens is None else self.areas.readable(tokens)

    def _check_self_attention(self, memory_mask: Tensor | None) -> None:
        if memory_mask is not None:
            raise ValueError("memory_mask needs a memory, got None")
        if self.memory_channels != self.channels:
            raise ValueError(f"memory must be [B, M, {self.memory_channels}], got None")

    def _check_memory(self, x: Tensor, memory: Tensor, memory_mask: Tensor | None) -> None:
        if self.is_causal:
            raise ValueError("memory must be None in a causal layer, got one")
        wanted = [x.size(0), "M", self.memory_channels]
        fits = memory.dim() == 3 and [memory.size(0), "M", memory.size(2)] == wanted
        if x.dim() != 3 or not fits or 0 in memory.shape:
            raise ValueError(
                f"memory must be [B, M, {self.memory_channels}] beside x [B, N, {self.channels}], "
                f"got {list(memory.shape)} beside {list(x.shape)}"
            )
        check_token_mask("memory_mask", memory_mask, memory)
