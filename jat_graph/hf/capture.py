"""Record the queries and keys of jump heads while a model runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from jat_graph.attention.jump_heads import JumpHeads
from jat_graph.attention.layers import HeadLayers
from jat_graph.config import JatConfig
from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.jump_layer import JumpLayer
from jat_graph.hf.kinds import LayerHeads
from jat_graph.hf.state import layer_state
from jat_graph.masks.tokens import TokenMask


@dataclass(frozen=True)
class CapturedLayer:
    """What the jump heads of one layer saw.

    Args:
        layer: Number of the layer, as the library counts.
        heads: The heads that jump.
        query: Queries of the jump heads, after rotary embeddings, detached.
        key: Keys of the jump heads; heads of one group have equal ones.
        config: The settings over ``heads``.
        mask: Which query may attend to which key.
        scale: Factor of the scores.
        strength: Strengths that the heads have learned, detached; None where none are learned.
            (default: None)
        conv: Layers of PyG in the heads; None where there are none. (default: None)

    Shapes:
        - ``query``, ``key``: ``[B, H, L, D]``, H the layer's jump heads
        - ``strength``: ``[3, hops, H]``
    """

    layer: int
    heads: tuple[int, ...]
    query: Tensor
    key: Tensor
    config: JatConfig
    mask: TokenMask
    scale: float
    strength: Tensor | None = None
    conv: HeadLayers | None = None

    def of_head(self, head: int) -> CapturedLayer:
        """Return one of the heads, as if it were the only one that jumps.

        Args:
            head: One of ``heads``.

        Returns:
            A layer with this head alone; nothing is copied.

        Raises:
            ValueError: If the head does not jump.
        """
        if head not in self.heads:
            raise ValueError(f"head must be one of {list(self.heads)}, got {head!r}")
        place = self.heads.index(head)
        alone = JumpHeads.everyone(self.config, len(self.heads)).of_head(place)
        one = slice(place, place + 1)
        return replace(
            self,
            heads=(head,),
            query=self.query[:, one],
            key=self.key[:, one],
            config=alone.config,
            mask=self.mask.select_heads((place,)),
            strength=None if self.strength is None else self.strength[..., one],
        )


@dataclass
class ScoreRecorder:
    """Collects what :func:`capture_scores` hands out, in the order of the layers."""

    layers: list[CapturedLayer] = field(default_factory=list)

    def record(self, kinds: tuple[LayerHeads, ...], inputs: AttentionInputs) -> None:
        """Add one call of a layer, if it has jump heads."""
        for heads in kinds:
            if isinstance(heads, JumpLayer):
                self._add(_captured(heads, inputs))

    def _add(self, captured: CapturedLayer) -> None:
        places = [layer.layer for layer in self.layers]
        if captured.layer in places:
            place = places.index(captured.layer)
            self.layers[place] = _joined(self.layers[place], captured)
        else:
            self.layers.append(captured)
            self.layers.sort(key=lambda layer: layer.layer)


def jumping_heads(model: nn.Module) -> dict[int, tuple[int, ...]]:
    """Return the jump heads of each layer that has some; nothing for a model without."""
    return {jump.index: jump.heads for _, jump in jumping_modules(model)}


def jumping_modules(model: nn.Module) -> list[tuple[nn.Module, JumpLayer]]:
    """Return the attention modules that have jump heads, with these."""
    find_attachment(model)  # which attaches heads that came by name
    states = ((module, layer_state(module)) for module in model.modules())
    return [
        (module, heads)
        for module, state in states
        for heads in (() if state is None else state.heads)
        if isinstance(heads, JumpLayer)
    ]


@contextmanager
def capture_scores(model: nn.Module) -> Iterator[list[CapturedLayer]]:
    """Record queries and keys of all jump heads in every forward inside the ``with``.

    Calls of one layer are joined along the batch: of ALBERT's, whose one module serves all layers,
    and of several forwards, which must then have one length. Inside :func:`disabled` the scores are
    recorded, too, but nothing jumps.

    Args:
        model: A model with jump heads, or a wrapper around it.

    Yields:
        A list that fills as the model runs: one entry for each jump layer, in their order.

    Raises:
        ValueError: If the model has no jump heads, or two forwards differ in length.
    """
    attachment = find_attachment(model)
    if attachment is None or JumpLayer not in attachment.configs:
        raise ValueError(f"model must have jump heads, got a {type(model).__name__} without")
    previous, recorder = attachment.recorder, ScoreRecorder()
    attachment.recorder = recorder.record
    try:
        yield recorder.layers
    finally:
        attachment.recorder = previous


def _captured(jump: JumpLayer, inputs: AttentionInputs) -> CapturedLayer:
    """Return what the jump heads of a layer see in one call of it."""
    if not inputs.is_whole:
        raise ValueError(
            "capture_scores needs the queries of all tokens: pass use_cache=False "
            f"(got {inputs.sizes[0]} queries for {inputs.sizes[1]} keys)"
        )
    inputs, heads = inputs.repeat_keys(), list(jump.heads)
    strength = jump.learned(inputs.module)
    return CapturedLayer(
        jump.index,
        jump.heads,
        inputs.query[:, heads].detach(),
        inputs.key[:, heads].detach(),
        jump.config,
        inputs.token_mask().select_heads(jump.heads),
        inputs.scale,
        None if strength is None else strength.detach().clone(),
        getattr(inputs.module, "jump_conv", None),
    )


def _joined(first: CapturedLayer, second: CapturedLayer) -> CapturedLayer:
    shapes = [tuple(layer.query.shape[1:]) for layer in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            "capture_scores joins forwards of one length only, "
            f"got {shapes[0][1]} and {shapes[1][1]} tokens; use a new `with` for each"
        )
    return CapturedLayer(
        first.layer,
        first.heads,
        torch.cat([first.query, second.query]),
        torch.cat([first.key, second.key]),
        first.config,
        _joined_mask((first.mask, second.mask), (first.query, second.query)),
        first.scale,
        first.strength,
        first.conv,
    )


def _joined_mask(masks: tuple[TokenMask, TokenMask], queries: tuple[Tensor, Tensor]) -> TokenMask:
    if masks[0].causal != masks[1].causal:
        raise ValueError("capture_scores cannot join a causal and a bidirectional call of a layer")

    def joined(parts: list[Tensor | None], fill: float) -> Tensor | None:
        known = next((part for part in parts if part is not None), None)
        if known is None:
            return None
        heads = max(part.size(1) for part in parts if part is not None)
        whole = [
            known.new_full((1, 1, *known.shape[2:]), fill) if part is None else part
            for part in parts
        ]
        sizes = [query.size(0) for query in queries]
        return torch.cat(
            [p.expand(b, heads, *p.shape[2:]) for p, b in zip(whole, sizes, strict=True)]
        )

    return TokenMask(
        joined([mask.valid for mask in masks], 1),
        masks[0].causal,
        joined([mask.pairs for mask in masks], 1),
        joined([mask.bias for mask in masks], 0),
        joined([mask.excluded for mask in masks], 0),
    )
