"""Settings of triplet heads."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from jat_graph.checks.numbers import check_choice, check_indices, check_integer

PAIRS = ("partner", "sum", "max")


@dataclass(frozen=True)
class TripletConfig:
    """Settings of triplet heads; :func:`jat_graph.attach` takes them in place of a ``JatConfig``.

    The defaults are those of the released code, but for what is wrong there:
    :class:`jat_graph.nn.TripletAttention` says what.

    Args:
        heads: How many heads become triplet heads, the last ones; a multiple of 3. (default: 3)
        layers: Indices from 0. (default: None, all)
        pairs: How keys come together: ``"partner"``, with second keys from a linear layer that each
            attention module gets, ``key2``; ``"sum"`` or ``"max"`` over all tokens, without.
            (default: ``"partner"``)
        seed: What random partners and the new weights are drawn from. (default: 0)

    Raises:
        ValueError: If a field does not fit.

    Reference:
        Zhou et al., *Triplet Attention: Rethinking the Similarity in Transformers*, KDD 2021.
    """

    heads: int = 3
    layers: tuple[int, ...] | None = None
    pairs: str = "partner"
    seed: int = 0

    def __post_init__(self) -> None:
        if check_integer("heads", self.heads, least=3) % 3 != 0:
            raise ValueError(f"heads must be a multiple of 3, got {self.heads}")
        if self.layers is not None:
            object.__setattr__(self, "layers", check_indices("layers", self.layers))
        check_choice("pairs", self.pairs, PAIRS)
        check_integer("seed", self.seed, least=0)

    def head_indices(self, num_heads: int) -> tuple[int, ...]:
        """Return the triplet heads of a layer of ``num_heads``, its last ones.

        Args:
            num_heads: Heads of the layer.

        Returns:
            Indices from 0.

        Raises:
            ValueError: If the layer has not as many.
        """
        if num_heads < self.heads:
            raise ValueError(f"heads must be at most {num_heads}, got {self.heads}")
        return tuple(range(num_heads - self.heads, num_heads))

    def layer_indices(self, num_layers: int) -> tuple[int, ...]:
        """Return the layers with triplet heads in a model of ``num_layers``.

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
    def from_dict(cls, settings: dict[str, Any]) -> TripletConfig:
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
            raise ValueError(f"triplet settings must be known fields, got {', '.join(unknown)}")
        return cls(**settings)
