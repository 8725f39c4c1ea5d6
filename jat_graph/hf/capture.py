"""Record the queries and keys of jump heads, or of cluster heads, while a model runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from jat_graph.core.masks import TokenMask
from jat_graph.hf.adapter import find_attachment, kinds_of, require_heads
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.jumps import AttachedJumps
from jat_graph.hf.modules import AttachedHeads
from jat_graph.hf.state import heads_of
from jat_graph.jumps.config import JatConfig, config_of_head
from jat_graph.jumps.layers import HeadConvs

HeadsT = TypeVar("HeadsT", bound=AttachedHeads)


@dataclass(frozen=True)
class CapturedLayer:
    """What the jump heads of one layer saw, or those that read by clusters.

    Args:
        layer: Number of the layer, as the library counts.
        heads: These heads, H.
        query: Their queries after rotary embeddings, detached, ``[B, H, L, D]``.
        key: Their keys, ``[B, H, L, D]``; heads of one group have equal ones.
        config: The settings over ``heads``.
        mask: Which query may attend to which key.
        scale: Factor of the scores.
        strength: What the heads have learned, ``[3, hops, H]``. (default: None, nothing)
        conv: Layers of PyG in the heads. (default: None, there are none)
        value: The values ``[B, H, L, Dv]`` of heads on clusters. (default: None, for others)
    """

    layer: int
    heads: tuple[int, ...]
    query: Tensor
    key: Tensor
    config: JatConfig
    mask: TokenMask
    scale: float
    strength: Tensor | None = None
    conv: HeadConvs | None = None
    value: Tensor | None = None

    def of_head(self, head: int) -> CapturedLayer:
        """Return one of the heads, as if it were the only one.

        Args:
            head: One of ``heads``.

        Returns:
            A layer with this head alone; nothing is copied.

        Raises:
            ValueError: If the head is none of them.
        """
        if head not in self.heads:
            raise ValueError(f"head must be one of {list(self.heads)}, got {head!r}")
        index = self.heads.index(head)
        one = slice(index, index + 1)
        return replace(
            self,
            heads=(head,),
            query=self.query[:, one],
            key=self.key[:, one],
            value=None if self.value is None else self.value[:, one],
            config=config_of_head(self.config, index, len(self.heads)),
            mask=self.mask.select_heads((index,)),
            strength=None if self.strength is None else self.strength[..., one],
        )


def heads_by_layer(
    model: nn.Module, kind: type[AttachedHeads] = AttachedJumps
) -> dict[int, tuple[int, ...]]:
    """Return the heads of a kind of each layer that has some."""
    return {heads.index: heads.heads for _, heads in modules_with(model, kind)}


def modules_with(model: nn.Module, kind: type[HeadsT]) -> list[tuple[nn.Module, HeadsT]]:
    """Return the attention modules that have heads of a kind, with these."""
    find_attachment(model)  # which attaches heads that came by name
    found = ((module, heads) for module in model.modules() for heads in heads_of(module))
    return [(module, heads) for module, heads in found if isinstance(heads, kind)]


@contextmanager
def recording(
    model: nn.Module, kind: type[AttachedHeads], record: Callable[[CapturedLayer], None]
) -> Iterator[None]:
    """Show what heads of a kind see, call by call, of every forward inside the ``with``."""
    attachment = require_heads(model, [kind])

    def show(kinds: tuple[AttachedHeads, ...], inputs: AttentionInputs) -> None:
        for heads in kinds:
            if isinstance(heads, kind):
                record(_captured(heads, inputs))

    with attachment.having("recorder", show):
        yield


@contextmanager
def capture_scores(
    model: nn.Module, config_class: type[Any] = JatConfig
) -> Iterator[list[CapturedLayer]]:
    """Record queries and keys of all jump heads in every forward inside the ``with``.

    Calls of one layer are joined along the batch: ALBERT's, whose one module serves all layers, and
    those of several forwards of one length. Inside :func:`disabled` they are recorded, too.
    Calls of other threads and tasks are not recorded, unless they are compiled.

    Args:
        model: A model with jump heads, or a wrapper around it.
        config_class: The kind of heads, as for :func:`detach`. (default: ``JatConfig``, jump heads)

    Yields:
        A list that fills as the model runs: one entry for each layer with such heads, in order.

    Raises:
        ValueError: If the model has no such heads, or two forwards differ in length.
    """
    layers: list[CapturedLayer] = []

    def keep(layer: CapturedLayer) -> None:
        found = {known.layer: known for known in layers}
        earlier = found.get(layer.layer)
        found[layer.layer] = layer if earlier is None else _joined(earlier, layer)
        layers[:] = (found[number] for number in sorted(found))

    with recording(model, next(iter(kinds_of(config_class)), AttachedJumps), keep):
        yield layers


def _captured(heads: AttachedHeads, inputs: AttentionInputs) -> CapturedLayer:
    inputs.check_whole("the scores of capture_scores")
    inputs = inputs.repeat_keys()
    own = list(heads.heads)
    query, key, value = (x[:, own].detach() for x in (inputs.query, inputs.key, inputs.value))
    mask = inputs.token_mask().select_heads(heads.heads)
    seen = (heads.index, heads.heads, query, key, heads.config, mask, inputs.scale)
    if not isinstance(heads, AttachedJumps):
        if inputs.everywhere is not None:
            raise ValueError("captured cluster heads must have no global tokens, got a mask")
        return CapturedLayer(*seen, value=value)
    strength = heads.learned(inputs.module)
    strength = None if strength is None else strength.detach().clone()
    return CapturedLayer(*seen, strength, getattr(inputs.module, "jump_conv", None))


def _joined(first: CapturedLayer, second: CapturedLayer) -> CapturedLayer:
    """Return two calls of a layer as one, along the batch."""
    both = (first, second)
    lengths = [layer.query.size(2) for layer in both]
    if lengths[0] != lengths[1]:
        got = f"{lengths[0]} and {lengths[1]} tokens; use a new `with` for each"
        raise ValueError(f"capture_scores joins forwards of one length only, got {got}")
    if first.mask.causal != second.mask.causal:
        raise ValueError("capture_scores cannot join a causal and a bidirectional call of a layer")
    masks: dict[str, Any] = {}
    for name, fill in {"valid": 1, "pairs": 1, "bias": 0, "excluded": 0}.items():
        parts = [getattr(layer.mask, name) for layer in both]
        known = [part for part in parts if part is not None]
        if known:  # the other call, which has no such mask, is as if it were filled
            heads = max(part.size(1) for part in known)
            shape = known[0].shape[2:]
            filled = [known[0].new_full((1, 1, *shape), fill) if p is None else p for p in parts]
            sizes = [(len(layer.query), heads, *shape) for layer in both]
            masks[name] = torch.cat([p.expand(s) for p, s in zip(filled, sizes, strict=True)])
    names = ["query", "key"] if first.value is None else ["query", "key", "value"]
    pairs = {name: torch.cat([getattr(layer, name) for layer in both]) for name in names}
    return replace(first, **pairs, mask=replace(first.mask, **masks))  # type: ignore[arg-type]
