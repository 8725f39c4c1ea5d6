"""What a kind of heads is: where its heads come to stand, and what they make of inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

from torch import Tensor, nn

from jat_graph.attention.heads import HeadGroup
from jat_graph.hf.describing import numbers
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.modules import AttentionModule, serves_several_layers
from jat_graph.patterns.base import Pattern


class HeadOutput(NamedTuple):
    """Heads that read in a way of their own, which is no plain attention on features."""

    heads: tuple[int, ...]  # in rising order
    output: Tensor  # what they read of their values, [B, len(heads), Lq, Dv]


HeadParts: TypeAlias = Sequence[HeadGroup | HeadOutput]


@dataclass(frozen=True)
class LayerHeads(ABC):
    """The heads of one kind in one attention module; each subclass is a kind."""

    index: int  # of the layer, as the library counts
    heads: tuple[int, ...]  # in rising order
    num_heads: int  # of the layer
    config: Any  # over ``heads`` where they differ from head to head

    config_class: ClassVar[type[Any]]  # what attach takes for the kind
    name: ClassVar[str]  # where a model's configuration holds and saves the settings
    word: ClassVar[str]  # what the kind is called in messages
    # Whether its heads are plain attention on other features, so that they give attention
    # probabilities and may read within a pattern.
    on_features: ClassVar[bool] = True

    @classmethod
    def place(cls, modules: list[AttentionModule], config: Any) -> dict[nn.Module, LayerHeads]:
        """Return the heads of each module that gets some; what needs no input is checked."""
        if config.layers is not None and serves_several_layers(modules):
            raise ValueError(
                f"layers must be None, because one {type(modules[0].module).__name__} serves "
                f"several layers of this model, got {config.layers}"
            )
        indices = config.layer_indices(len(modules))
        return {
            modules[index].module: cls.in_module(modules[index], index, row, config)
            for row, index in enumerate(indices)
        }

    @classmethod
    @abstractmethod
    def in_module(cls, entry: AttentionModule, index: int, row: int, config: Any) -> LayerHeads:
        """Return the heads of one module, the ``row``-th that gets some."""

    @classmethod
    def pattern(cls, config: Any) -> Pattern | None:
        """Return where all heads of the model, of whatever kind, read their scores."""
        return None

    @classmethod
    def needs_rows(cls, config: Any) -> bool:
        """Tell whether heads depend on their layer, by a table or a seed of its own."""
        return True

    @classmethod
    def learns(cls, config: Any) -> bool:
        """Tell whether heads with these settings bring parameters."""
        return False

    def is_identity(self, module: nn.Module) -> bool:
        """Tell whether all of them are ordinary heads, by the settings or what they learned."""
        return False

    def parameters(self, module: nn.Module) -> Mapping[str, Callable[[], nn.Module | nn.Parameter]]:
        """Return what the module gets to learn with these heads: by name, what makes it."""
        return {}

    def describe(self, module: nn.Module) -> str:
        """Return in a line which heads they are, and what they do."""
        return f"{self.word} heads {numbers(self.heads)} of {self.num_heads}: {self.way(module)}"

    @abstractmethod
    def way(self, module: nn.Module) -> str:
        """Return in a few words what the heads do."""

    @abstractmethod
    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return how each of the heads reads; the inputs are of these alone, counted from 0."""
