"""The heads of one kind that an attention module has: what all kinds have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from torch import nn

from jat_graph.core.heads import HeadParts
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.modules import AttentionModule, serves_several_layers

if TYPE_CHECKING:
    from jat_graph.jumps.config import JatConfig

Builders: TypeAlias = Mapping[str, Callable[[], nn.Module]]  # of what a module gets to learn
HeadsByModule: TypeAlias = "dict[nn.Module, AttachedHeads]"
ConfigsByKind: TypeAlias = "dict[type[AttachedHeads], JatConfig]"


@dataclass(frozen=True)
class AttachedHeads(ABC):
    """The heads of one kind in one attention module; each subclass is a kind."""

    index: int  # of the layer, as the library counts
    heads: tuple[int, ...]  # in rising order
    num_heads: int  # of the layer
    config: JatConfig  # over ``heads`` where they differ from head to head

    graphs: ClassVar[tuple[type[Any], ...]]  # of its settings
    name: ClassVar[str]  # where a model's configuration holds and saves the settings
    word: ClassVar[str]  # what the kind is called in messages

    @classmethod
    def in_modules(cls, modules: list[AttentionModule], config: JatConfig) -> HeadsByModule:
        """Return the heads of each module that gets some; what needs no input is checked."""
        found = [entry for entry in modules if entry.left_alone is None]
        if config.layers is not None and serves_several_layers(found):
            raise ValueError(
                f"layers must be None, because one {type(found[0].module).__name__} serves "
                f"several layers of this model, got {config.layers}"
            )
        layers = config.layer_indices(len(found))
        for name, table in config.graph.tables().items():
            if len(table) != len(layers):
                wanted = f"{len(layers)} rows, one for each layer, got {len(table)}"
                raise ValueError(f"{name} table must have {wanted}")
        made = {}
        for row, index in enumerate(layers):
            heads = cls.in_module(found[index], index, row, config)
            if heads is not None:
                made[found[index].module] = heads
        return made

    @classmethod
    def in_module(
        cls, entry: AttentionModule, index: int, row: int, config: JatConfig
    ) -> AttachedHeads | None:
        """Return the heads of one module, the ``row``-th that gets some; None if it needs none."""
        heads = config.head_indices(entry.num_heads)
        return cls(index, heads, entry.num_heads, config.for_layer(row, heads))

    def parameters(self, module: nn.Module, conv: Any = None) -> Builders:
        """Return what the module gets to learn with these heads: by name, what makes it."""
        return {}

    @abstractmethod
    def is_identity(self, module: nn.Module) -> bool:
        """Tell whether all of them are ordinary heads, by the settings or what they learned."""

    @abstractmethod
    def describe(self, module: nn.Module) -> str:
        """Return in a few words what the heads do."""

    @abstractmethod
    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return how each of the heads reads; the inputs are of these alone, counted from 0."""


def spread(value: Any, unset: str = "", form: str = "g") -> str:
    """Return a number, or the least and the largest of a table with one row, and what None is."""
    entries = value[0] if isinstance(value, tuple) else (value,)
    numbers = sorted(entry for entry in entries if entry is not None)
    ends = dict.fromkeys(f"{end:{form}}" for end in (*numbers[:1], *numbers[-1:]))
    return " or ".join([" to ".join(ends)] * bool(ends) + [unset] * (None in entries))
