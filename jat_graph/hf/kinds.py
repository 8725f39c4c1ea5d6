"""What a kind of heads is: which heads it takes, and what they make of inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from torch import Tensor, nn

from jat_graph.attention.heads import HeadGroup
from jat_graph.checks.numbers import check_indices
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.modules import AttentionModule, serves_several_layers


class HeadOutput(NamedTuple):
    """Heads that are no plain attention on features."""

    heads: tuple[int, ...]  # in rising order
    output: Tensor  # [B, len(heads), Lq, Dv]


Builders: TypeAlias = Mapping[str, Callable[[], nn.Module]]  # of what a module gets to learn
HeadParts: TypeAlias = Sequence[HeadGroup | HeadOutput]
ModuleHeads: TypeAlias = "dict[nn.Module, LayerHeads]"
KindConfigs: TypeAlias = "dict[type[LayerHeads], Any]"  # the settings of each kind of heads


@dataclass(frozen=True)
class LayerHeads(ABC):
    """The heads of one kind in one attention module; each subclass is a kind."""

    index: int  # of the layer, as the library counts
    heads: tuple[int, ...]  # in rising order
    num_heads: int  # of the layer
    config: Any  # over ``heads`` where they differ from head to head

    config_class: ClassVar[type[Any]]  # what attach takes for the kind
    graphs: ClassVar[tuple[type[Any], ...]] = ()  # of its settings, if another kind shares them
    name: ClassVar[str]  # where a model's configuration holds and saves the settings
    word: ClassVar[str]  # what the kind is called in messages
    # Whether they are plain attention on other features, with probabilities and patterns.
    on_features: ClassVar[bool] = True

    @classmethod
    def in_modules(cls, modules: list[AttentionModule], config: Any) -> dict[nn.Module, LayerHeads]:
        """Return the heads of each module that gets some; what needs no input is checked."""
        found = [entry for entry in modules if entry.left_alone is None]
        if config.layers is not None and serves_several_layers(found):
            raise ValueError(
                f"layers must be None, because one {type(found[0].module).__name__} serves "
                f"several layers of this model, got {config.layers}"
            )
        rows = enumerate(config.layer_indices(len(found)))
        made = {found[i].module: cls.in_module(found[i], i, row, config) for row, i in rows}
        return {module: heads for module, heads in made.items() if heads is not None}

    @classmethod
    def in_module(
        cls, entry: AttentionModule, index: int, row: int, config: Any
    ) -> LayerHeads | None:
        """Return the heads of one module, the ``row``-th that gets some; None if it needs none."""
        return cls(index, config.head_indices(entry.num_heads), entry.num_heads, config)

    @classmethod
    def takes(cls, config: Any) -> bool:
        """Tell whether some settings are of this kind."""
        known = isinstance(config, cls.config_class)
        return known and (not cls.graphs or isinstance(config.graph, cls.graphs))

    @classmethod
    def goes_by(cls, config_class: type[Any] | None) -> bool:
        """Tell whether a class of settings, or of a graph, means this kind; None means all."""
        return config_class in (None, cls.config_class, *cls.graphs)

    @classmethod
    def learns(cls, config: Any) -> bool:
        """Tell whether heads with these settings bring parameters."""
        return False

    def is_identity(self, module: nn.Module) -> bool:
        """Tell whether all of them are ordinary heads, by the settings or what they learned."""
        return False

    def parameters(self, module: nn.Module, conv: Any = None) -> Builders:
        """Return what the module gets to learn with these heads: by name, what makes it."""
        return {}

    @abstractmethod
    def describe(self, module: nn.Module) -> str:
        """Return in a few words what the heads do."""

    @abstractmethod
    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return how each of the heads reads; the inputs are of these alone, counted from 0."""


@dataclass(frozen=True)
class LayerConfig:
    """Settings of heads in some layers of a model; a subclass says what the heads are."""

    layers: tuple[int, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.layers is not None:
            object.__setattr__(self, "layers", check_indices("layers", self.layers))

    def head_indices(self, num_heads: int) -> tuple[int, ...]:
        """Return the heads of a layer that are such heads: all of them."""
        return tuple(range(num_heads))

    def layer_indices(self, num_layers: int) -> tuple[int, ...]:
        """Return the layers with such heads in a model of so many."""
        layers = tuple(range(num_layers)) if self.layers is None else self.layers
        if layers[-1] >= num_layers:
            raise ValueError(f"layers must be below {num_layers}, got {self.layers}")
        return layers

    def to_dict(self) -> dict[str, Any]:
        """Return the settings in JSON's types."""
        return asdict(self) | {"layers": None if self.layers is None else list(self.layers)}

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Self:
        """Return the settings that :meth:`to_dict` gave."""
        unknown = sorted(set(settings) - {entry.name for entry in fields(cls)})
        if unknown:
            raise ValueError(f"{cls.__name__} must have known fields, got {', '.join(unknown)}")
        return cls(**settings)
