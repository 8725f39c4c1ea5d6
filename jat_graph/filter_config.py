"""Settings of filter heads."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from jat_graph.checks.numbers import check_choice, check_indices, check_integer, check_number

RULES = ("gfsa", "ppr")
RESTART = 0.15


@dataclass(frozen=True)
class FilterConfig:
    """Settings of filter heads; :func:`jat_graph.attach` takes them in place of a ``JatConfig``.

    Such a head reads its values by a polynomial of its own attention probabilities P, and leaves
    queries and keys as they are. All heads of a layer are filter heads.

    Args:
        rule: ``"gfsa"``: w₀ I + w₁ P + w_K [P + (K − 1)(P² − P)], the bracket standing for P to the
            power of K; each head learns its three weights, which begin at 0, 1 and 0, so that the
            model is its base. ``"ppr"``: Z ← (1 − α) P Z + α V, K times, from Z = V, which learns
            nothing and is not the base. (default: ``"gfsa"``)
        order: K, at least 1. (default: 3)
        restart: α of ``"ppr"``, from 0 to 1; ``"gfsa"`` has none. (default: None, 0.15 for
            ``"ppr"``)
        layers: Indices from 0. (default: None, all)

    Raises:
        ValueError: If a field does not fit.

    Reference:
        Choi et al., *Graph Convolutions Enrich the Self-Attention in Transformers!*, NeurIPS 2024,
        and Wang et al., *Multi-hop Attention Graph Neural Networks*, IJCAI 2021 (MAGNA), whose
        layer norm and feed-forward are those that a transformer has anyway.
    """

    rule: str = "gfsa"
    order: int = 3
    restart: float | None = None
    layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_choice("rule", self.rule, RULES)
        check_integer("order", self.order, least=1)
        if self.rule == "gfsa" and self.restart is not None:
            raise ValueError(f"restart must be None for gfsa, got {self.restart!r}")
        if self.rule == "ppr":
            restart = RESTART if self.restart is None else self.restart
            if check_number("restart", restart, least=0.0) > 1:
                raise ValueError(f"restart must be at most 1, got {restart}")
            object.__setattr__(self, "restart", restart)
        if self.layers is not None:
            object.__setattr__(self, "layers", check_indices("layers", self.layers))

    def head_indices(self, num_heads: int) -> tuple[int, ...]:
        """Return the filter heads of a layer: all of them.

        Args:
            num_heads: Heads of the layer.

        Returns:
            Indices from 0.
        """
        return tuple(range(num_heads))

    def layer_indices(self, num_layers: int) -> tuple[int, ...]:
        """Return the layers with filter heads in a model of ``num_layers``.

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
        return asdict(self) | {"layers": None if self.layers is None else list(self.layers)}

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> FilterConfig:
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
            raise ValueError(f"filter settings must be known fields, got {', '.join(unknown)}")
        return cls(**settings)
