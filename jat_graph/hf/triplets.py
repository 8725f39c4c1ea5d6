"""Triplet heads, A³, in pretrained models: the competitor of jump heads, for baseline rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from jat_graph.checks.numbers import check_choice, check_integer
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.kinds import Builders, HeadOutput, HeadParts, LayerConfig, LayerHeads
from jat_graph.hf.modules import AttentionModule


@dataclass(frozen=True)
class TripletConfig(LayerConfig):
    """Settings of triplet heads; :func:`jat_graph.attach` takes them in place of a ``JatConfig``.

    The defaults are those of the released code; :class:`jat_graph.nn.TripletAttention` says more.

    Args:
        heads: How many heads become triplet heads, the last ones; a multiple of 3. (default: 3)
        layers: Indices from 0. (default: None, all)
        pairs: How keys come together: ``"partner"``, with second keys from a linear layer ``key2``;
            ``"sum"`` or ``"max"`` over all tokens, without. (default: ``"partner"``)
        seed: What random partners and the new weights are drawn from. (default: 0)

    Raises:
        ValueError: If a field does not fit.

    Reference:
        Zhou et al., *Triplet Attention: Rethinking the Similarity in Transformers*, KDD 2021.
    """

    heads: int = 3
    pairs: str = "partner"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if check_integer("heads", self.heads, least=3) % 3 != 0:
            raise ValueError(f"heads must be a multiple of 3, got {self.heads}")
        check_choice("pairs", self.pairs, ("partner", "sum", "max"))
        check_integer("seed", self.seed, least=0)

    def head_indices(self, num_heads: int) -> tuple[int, ...]:
        """Return the triplet heads of a layer, its last ones."""
        check_integer("heads", self.heads, least=3, below=num_heads + 1)
        return tuple(range(num_heads - self.heads, num_heads))


@dataclass(frozen=True)
class TripletLayer(LayerHeads):
    """The triplet heads of one attention module, and their second keys."""

    config: TripletConfig

    config_class = TripletConfig
    name = "triplet"
    word = "triplet"
    on_features = False

    @classmethod
    def in_module(
        cls, entry: AttentionModule, index: int, row: int, config: Any
    ) -> LayerHeads | None:
        """Return the triplet heads of one module, which must not be causal."""
        kind = type(entry.module).__name__
        if entry.is_causal:
            raise ValueError(f"{kind} is causal: triplets take in later tokens")
        return super().in_module(entry, index, row, config)

    @classmethod
    def learns(cls, config: TripletConfig) -> bool:
        """Tell whether keys come together with partners."""
        return config.pairs == "partner"

    def parameters(self, module: nn.Module, conv: Any = None) -> Builders:
        """Return the layer of second keys, drawn as the model drew its own, if there is one."""
        settings: Any = module.config

        def second_keys() -> nn.Module:
            width, like = settings.hidden_size, next(module.parameters())
            size = width // self.num_heads * len(self.heads)
            std = getattr(settings, "initializer_range", 0.02)
            # On "meta" nothing is drawn, so that the global state stays as it is.
            key2 = nn.Linear(width, size, device="meta", dtype=like.dtype)
            key2 = key2.to_empty(device=like.device)
            generator = torch.Generator("cpu").manual_seed(self.config.seed + self.index)
            drawn = torch.empty(size, width, device="cpu").normal_(std=std, generator=generator)
            with torch.no_grad():
                key2.weight.copy_(drawn)
                key2.bias.zero_()
            return key2

        return {"key2": second_keys} if self.learns(self.config) else {}

    def describe(self, module: nn.Module) -> str:
        """Return how their keys come together."""
        return f"pairs {self.config.pairs}"

    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return what the heads read, three features of all of them at a time."""
        from jat_graph.nn.triplet_attention import triplet_heads  # PyG takes seconds to load

        second_key = None
        if self.config.pairs == "partner":
            flat = inputs.module.key2(inputs.hidden)  # type: ignore[operator]
            second_key = flat.unflatten(-1, (len(self.heads), -1)).transpose(1, 2)  # [B, H, L, D]
        name, mask = type(inputs.module).__name__, inputs.token_mask()
        features = (inputs.query, inputs.key, inputs.value)
        if mask.causal or mask.pairs is not None or mask.bias is not None:
            raise ValueError(
                f"{name} must have a mask of padding only for triplet heads, got one of pairs"
            )
        if not inputs.query.shape == inputs.key.shape == inputs.value.shape:
            shapes = [list(x.shape) for x in features]
            raise ValueError(f"triplet heads of {name} need tensors of one shape, got {shapes}")
        output = triplet_heads(
            *features,
            second_key,
            pairs=self.config.pairs,
            seed=self.config.seed + self.index,
            mask=None if mask.valid is None else mask.valid[:, 0].expand(len(inputs.query), -1),
            dropout_p=inputs.dropout,
        )
        return [HeadOutput(tuple(range(len(self.heads))), output)]
