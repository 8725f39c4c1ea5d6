"""The heads that a run places: jump heads, triplet heads, both, or filter heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import PreTrainedTokenizerBase

    from jat_graph.config import JatConfig
    from jat_graph.hf.filters import FilterConfig
    from jat_graph.hf.triplets import TripletConfig

# Settings of the heads that a run places.
Heads: TypeAlias = Union["JatConfig", "TripletConfig", "FilterConfig", "BothHeads"]
# Those without a threshold.
Others: TypeAlias = Union["TripletConfig", "FilterConfig"]


@dataclass(frozen=True)
class BothHeads:
    """Jump heads and triplet heads in one model: settings for :func:`train` and :func:`compare`.

    Args:
        jump: Settings of the jump heads.
        triplet: Settings of the triplet heads; no head may be of both kinds.

    Reference:
        Zhou et al. 2022, section 4.2: the two can be used together.
    """

    jump: JatConfig
    triplet: TripletConfig

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON types, by the names that a model's configuration has."""
        return {"jat": self.jump.to_dict(), "triplet": self.triplet.to_dict()}


def join_kinds(jump: JatConfig | None, other: Others | None) -> Heads | None:
    """Return the settings of heads of the kinds that there are."""
    from jat_graph.hf.triplets import TripletConfig

    if jump is None or other is None:
        return jump or other
    if not isinstance(other, TripletConfig):
        raise ValueError("filter heads must stand alone, got jump heads beside them")
    return BothHeads(jump, other)


def kinds_of(heads: Heads | None) -> tuple[JatConfig | None, Others | None]:
    """Return the settings of jump heads, and of triplet or filter heads."""
    from jat_graph.config import JatConfig

    if isinstance(heads, BothHeads):
        return heads.jump, heads.triplet
    return (heads, None) if isinstance(heads, JatConfig) else (None, heads)


def attach_heads(
    model: Module, heads: Heads | None, tokenizer: PreTrainedTokenizerBase | None = None
) -> None:
    """Attach the heads of each kind."""
    from jat_graph.hf import attach

    for config in kinds_of(heads):
        if config is not None:
            attach(model, config, tokenizer)


def name_of(heads: Heads | None) -> str:
    """Return what an arm with these heads is called where nothing is said."""
    from jat_graph.hf.filters import FilterConfig

    if isinstance(heads, FilterConfig):
        return heads.rule
    jump, triplet = kinds_of(heads)
    return "jump" if triplet is None else "triplet" if jump is None else "both"
