"""Global self-attention over the nodes of graphs, some of its heads jumping."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor

from jat_graph.clusters.api import layer_rules, read_heads
from jat_graph.clusters.choice import Rule
from jat_graph.core.masks import resolve_mask
from jat_graph.core.numbers import check_flag
from jat_graph.core.tensors import default_scale
from jat_graph.jumps.api import attend_groups
from jat_graph.jumps.config import JatConfig, check_config
from jat_graph.jumps.heads import JumpHeads, JumpStrength
from jat_graph.jumps.layers import HeadConvs
from jat_graph.jumps.propagation import head_groups
from jat_graph.nn.conv_factory import ConvFactory, build_layers, with_conv
from jat_graph.nn.self_attention import SelfAttention


class JumpSelfAttention(SelfAttention):
    r"""Multi-head self-attention whose first, or chosen, heads propagate queries and keys.

    .. math::
        \mathrm{softmax}\left(\textstyle\sum_p w_p\, \mathbf{\hat{A}}^p \mathbf{Q}
        (\mathbf{\hat{A}}^p \mathbf{K})^{\top} / \sqrt{D} \right) \mathbf{V}

    Heads that ``config.heads`` does not name are ordinary ones. The projections are named as in
    PyG's own ``nn.attention`` modules, ``q``, ``k``, ``v`` and ``attn_out``.

    The module is a model of one layer: ``config.layers`` must be None or ``(0,)``, and a table of
    thresholds must have one row, with an entry for each jump head. A stack of layers takes one
    config each. ``config.pattern`` limits what all heads read, those that do not jump, too. In a
    layer trained from scratch the scores start near 0, so that a fixed threshold joins nothing:
    take ``vote_rate``, or stones, whose threshold fits scores of any size. With
    ``JatConfig.clustered()`` heads read by clusters, as :func:`jat_graph.clustered_attention` does.

    Where the config's ``strength`` is ``"learned"``, the module owns a parameter
    ``strength.theta`` ``[3, hops, jump heads]``, for queries, keys and values, that begins at 0.
    Train it without weight decay and with a learning rate of its own. A layer of PyG is
    ``jump_conv``. Both names are those of attached models.

    Args:
        channels, heads, head_channels, qkv_bias, attn_out_bias, dropout: As for
            :class:`SelfAttention`.
        config: The settings. (default: None, no head jumps)
        is_causal: A node sees itself and those before it only, as in a decoder, and so do the
            votes; voting keys must be chosen without looking ahead: ``key_selection="all"``, or
            ``"strided"`` with a ``key_step``; ``vote_rate`` raises. (default: False)
        conv: A layer of PyG in the jump heads, as :func:`jat_graph.attach` takes it, drawn from
            PyTorch's own random state. (default: None, that of the config)

    Raises:
        ValueError: If a size does not fit, or the config does not fit one layer of these heads.

    Shapes:
        - **input, output:** as for :class:`SelfAttention`

    Reference:
        Eq. 7 and 9 of the JAT paper; its section 3.2.1 for causal order.

    Example:
        >>> import jat_graph, torch
        >>> config = jat_graph.JatConfig(jat_graph.PairGraph(vote_rate=0.05), heads=2)
        >>> layer = jat_graph.nn.JumpSelfAttention(32, heads=4, config=config)
        >>> layer
        JumpSelfAttention(32, heads=4, head_channels=8, jump_heads=(0, 1))
        >>> x, batch = torch.randn(10, 32), torch.tensor([0] * 6 + [1] * 4)  # two graphs
        >>> layer(x, batch=batch).shape
        torch.Size([10, 32])
    """

    shown = ("head_channels", "jump_heads")

    def __init__(
        self,
        channels: int,
        heads: int,
        config: JatConfig | None = None,
        head_channels: int | None = None,
        qkv_bias: bool = False,
        attn_out_bias: bool = True,
        dropout: float = 0.0,
        is_causal: bool = False,
        conv: ConvFactory | None = None,
    ) -> None:
        if config is not None:
            check_config(config)
            config = with_conv(config, conv)
        super().__init__(channels, heads, head_channels, qkv_bias, attn_out_bias, dropout)
        self.config = config
        self.is_causal = check_flag("is_causal", is_causal)
        self.jump_heads = () if config is None else config.head_indices(heads)
        layer_config = JatConfig()
        # Of heads that read by clusters, in causal order or not, on CUDA or not.
        self._rules: dict[tuple[bool, bool], dict[Rule, tuple[int, ...]]] = {}
        if config is not None:
            config.layer_indices(1)
            if config.graph.kind == "clusters":
                graph, own = config.cluster_graph, self.jump_heads
                for causal, device in product((False, True), ("cpu", "cuda")):
                    rules = layer_rules(graph, own, heads, causal, device)
                    self._rules[causal, device == "cuda"] = rules
            else:
                config.jump_graph.thresholds(len(self.jump_heads))
                layer_config = config.for_layer(0, self.jump_heads)
        self._jumping = JumpHeads(layer_config, () if self._rules else self.jump_heads)
        theta = self._jumping.new_strength()
        self.strength = None if theta is None else JumpStrength(theta)
        self.jump_conv: HeadConvs | None = None
        if layer_config.conv is not None:
            self.jump_conv = build_layers(layer_config, conv, self.head_channels)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.strength is not None:
            torch.nn.init.zeros_(self.strength.theta)  # no jump at all

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        """Take the names of version 0.1 too, ``strength`` and ``conv``."""
        for name in [name for name in state_dict if name.startswith(prefix)]:
            own, _, rest = name.removeprefix(prefix).partition(".")
            if own == "strength" and not rest:
                state_dict[f"{prefix}strength.theta"] = state_dict.pop(name)
            elif own == "conv":
                state_dict[f"{prefix}jump_conv.{rest}"] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = self.project(x, x)
        jumping = self._jumping
        scale = default_scale(self.head_channels)
        token_mask = resolve_mask(mask, self.is_causal, query)
        options: dict[str, Any] = {"mask": token_mask, "scale": scale}
        if self._rules:
            rules = self._rules[token_mask.causal, query.is_cuda]
            return read_heads(query, key, value, rules, dropout_p=0.0, **options)
        strength = None if self.strength is None else self.strength()
        learned: dict[str, Any] = {"strength": strength, "layers": self.jump_conv}
        groups = head_groups(query, key, value, jumping, **options, **learned)
        return attend_groups(groups, jumping.pattern, dropout_p=0.0, **options)
