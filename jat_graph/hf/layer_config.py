"""What the settings of filter heads and of triplet heads share: layers, and JSON."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self

from jat_graph.checks.numbers import check_indices


@dataclass(frozen=True)
class LayerConfig:
    """Settings of heads in some layers of a model; a subclass says what the heads are.

    Args:
        layers: Indices from 0. (default: None, all)

    Raises:
        ValueError: If a field does not fit.
    """

    layers: tuple[int, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.layers is not None:
            object.__setattr__(self, "layers", check_indices("layers", self.layers))

    def layer_indices(self, num_layers: int) -> tuple[int, ...]:
        """Return the layers with such heads in a model of ``num_layers``.

        Args:
            num_layers: Layers of the model.

        Returns:
            Indices from 0.

        Raises:
            ValueError: If the model lacks one of them.
        """
        layers = tuple(range(num_layers)) if self.layers is None else self.layers
        if layers[-1] >= num_layers:
            raise ValueError(f"layers must be below {num_layers}, got {self.layers}")
        return layers

    def to_dict(self) -> dict[str, Any]:
        """Return the settings in JSON's types."""
        settings = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return settings | {"layers": None if self.layers is None else list(self.layers)}

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Self:
        """Return the settings that :meth:`to_dict` gave.

        Args:
            settings: Fields by name.

        Returns:
            The settings.

        Raises:
            ValueError: If a field is unknown or does not fit.
        """
        unknown = sorted(set(settings) - {entry.name for entry in fields(cls)})
        if unknown:
            raise ValueError(f"{cls.__name__} must have known fields, got {', '.join(unknown)}")
        return cls(**settings)
