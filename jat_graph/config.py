"""The settings of jump attention: one frozen dataclass, checked once, stored as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.config_fields import (
    LEARNED,
    HopWeights,
    Strength,
    Triple,
    check_field,
    check_version,
    hops_by_position,
    read_pattern,
    table_row,
    to_plain,
)
from jat_graph.files import read_object, write_text

if TYPE_CHECKING:
    from jat_graph.patterns.base import Pattern

CONFIG_VERSION = 2
# Fields of the second version. A config that leaves them alone is written as one of the first, so
# that older versions of the library read it.
SECOND_VERSION = (
    "graph",
    "standardize",
    "incidence",
    "sides",
    "self_weight",
    "strength",
    "hops",
    "silent_tokens",
    "conv",
    "min_weight",
    "max_neighbors",
)
THRESHOLDS = {"pairs": 6.0, "stones": 1.0}


@dataclass(frozen=True)
class JatConfig:
    r"""Which heads jump, who votes, and how far scores travel.

    Args:
        threshold: ρ of Eq. 2, at least 0, in units of squared scaled scores. A number, or the table
            ``[jump layer][jump head]`` that :func:`jat_graph.calibrate` returns. With stones t, at
            least 0, in standard deviations of the scores. (default: 6.0, and 1.0 with stones)
        vote_rate: In the place of ``threshold``, the ρ that lets this share of the products vote,
            measured per sequence and head; in (0, 1). (default: None)
        hop_weights: Weight of each hop, index = hop: ``(1,)`` is ordinary attention, ``(0, 1)`` the
            paper's jump attention, ``(0.5, 0.5)`` the released code's mixture. Or a mapping from
            tuples of heads to such weights. (default: (0.0, 1.0))
        heads: Which heads jump: a number (the first n), ``"all"``, ``"even:n"`` (heads 0, 2, 4 …)
            or indices. (default: 4)
        layers: Indices of the layers that jump, from 0; None for all. (default: None)
        key_selection: Which keys vote: ``"all"``, ``"significance"`` (JAT†, Eq. 8), ``"sampled"``
            (the same over sampled queries), ``"strided"``, or ``"sampled_queries"`` (the released
            code's JAT†: the positions of the top queries over sampled keys). (default: "all")
        num_keys: Number U of voting keys, capped at the sequence's length. (default: None, which
            means ``ceil(key_factor * ln(n))``)
        key_factor: Factor c of U = ⌈c·ln n⌉, above 0. (default: 5.0)
        key_step: Step of ``"strided"`` in valid positions; a causal model needs it.
            (default: None, which spreads U keys evenly)
        same_sign_only: Two negative scores do not vote. (default: False)
        normalize_keys: Divide the product by max(1, ‖K_j‖). (default: False)
        inclusive: Vote when the product equals ρ, too. (default: False)
        nodes: ``"all"`` tokens are nodes of the graph, or only the ``"selected"`` voting positions.
            (default: "all")
        soft_temperature: τ of the differentiable vote sigmoid((X_ij X_kj − ρ)/τ), above 0, or with
            stones of the incidence ``"sigmoid"``. (default: None, hard votes; 0.5 for stones)
        backend: ``"dense"``, ``"sparse"``, ``"threshold"``, or ``"auto"``; for stones
            all but ``"threshold"``. (default: "auto")
        seed: Seed of every sample that is drawn. (default: 0)
        pattern: Where scores are read, though not votes: a :class:`jat_graph.patterns.Pattern` or
            its spec, as ``"window:256+global:1"``, which is kept. (default: None, everywhere)
        graph: What a jump goes along: ``"pairs"`` of tokens, the paper's, or ``"stones"``, from a
            token to a key that it scores unusually high, and on to another token that does.
            (default: "pairs")
        standardize: Vote by standard scores: centred, and in standard deviations of their sequence
            and head. Stones always do. (default: False)
        incidence: How a token of standard score z stands on a stone: ``"excess"`` max(0, z − t),
            ``"hard"`` 1[z > t], or ``"sigmoid"`` σ((z − t)/τ). (default: "excess")
        sides: ``"both"``: unusually low scores link, too, to stones of their own; or
            ``"positive"``. (default: "both")
        self_weight: ε, the weight with which a token stays where it is, at least 0. (default: 0.1)
        strength: θ, how strongly each hop changes queries, keys and values: ``"learned"``, a
            number, or three of either; with more hops, a tuple of three for each. With pairs it
            replaces ``hop_weights``. (default: None, which with stones or ``conv`` means "learned")
        hops: Number of hops, with a strength each. (default: 1)
        silent_tokens: Token ids that never vote and are never stones, as ``[CLS]`` and ``[SEP]``.
            (default: none)
        conv: A layer of ``torch_geometric.nn`` or :mod:`jat_graph.nn` that queries, keys and values
            go through, in the place of a product by Â or P: its name, or ``{"layer": name}`` with
            its arguments; its numbers of channels, where it has any, are the heads'. It takes a
            strength. (default: None; ``"given"`` where :func:`jat_graph.attach` got a layer that no
            settings can build)
        min_weight: Drop edges of pairs of less weight. (default: 0.0)
        max_neighbors: Keep the heaviest edges into each token, and their reverse where it exists.
            (default: None, which keeps all)

    Raises:
        ValueError: If a field is out of its range, or two do not go together; the message names
            field, wanted and got.

    Reference:
        Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*,
        NeurIPS 2022. Stones are this library's own.

    Example:
        >>> from jat_graph import JatConfig
        >>> config = JatConfig(vote_rate=0.05, heads=2, pattern="window:256+global:1")
        >>> config.hop_weights
        (0.0, 1.0)
        >>> JatConfig.from_dict(config.to_dict()) == config
        True
        >>> JatConfig(threshold=-1.0)
        Traceback (most recent call last):
        ValueError: threshold must be at least 0, got -1.0
    """

    threshold: float | tuple[tuple[float, ...], ...] = None  # type: ignore[assignment]
    vote_rate: float | None = None
    hop_weights: HopWeights | dict[tuple[int, ...], HopWeights] = (0.0, 1.0)
    heads: int | str | tuple[int, ...] = 4
    layers: tuple[int, ...] | None = None
    key_selection: str = "all"
    num_keys: int | None = None
    key_factor: float = 5.0
    key_step: int | None = None
    same_sign_only: bool = False
    normalize_keys: bool = False
    inclusive: bool = False
    nodes: str = "all"
    soft_temperature: float | None = None
    backend: str = "auto"
    seed: int = 0
    pattern: str | Pattern | None = None
    graph: str = "pairs"
    standardize: bool = False
    incidence: str = "excess"
    sides: str = "both"
    self_weight: float = 0.1
    strength: Strength | Triple | tuple[Triple, ...] | None = None
    hops: int = 1
    silent_tokens: tuple[int, ...] = ()
    conv: str | dict[str, Any] | None = None
    min_weight: float = 0.0
    max_neighbors: int | None = None

    def __post_init__(self) -> None:
        checked = {
            field.name: check_field(field.name, getattr(self, field.name)) for field in fields(self)
        }
        if checked["threshold"] is None:
            checked["threshold"] = THRESHOLDS[checked["graph"]]
        if checked["graph"] == "stones":
            checked["standardize"] = True
        if checked["strength"] is None and (checked["graph"] == "stones" or checked["conv"]):
            checked["strength"] = LEARNED
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self._check_combinations()

    @classmethod
    def paper(cls, **overrides: Any) -> JatConfig:
        """Return the paper's settings: ρ 6, one hop, 4 heads, all layers.

        Args:
            overrides: Fields to replace.

        Returns:
            The config.

        Raises:
            ValueError: If a field is unknown or out of its range.

        Example:
            >>> from jat_graph import JatConfig
            >>> JatConfig.paper() == JatConfig(threshold=6.0, hop_weights=(0, 1), heads=4)
            True
        """
        return cls._preset({}, overrides)

    @classmethod
    def released(cls, *, efficient: bool = False, **overrides: Any) -> JatConfig:
        """Return the settings of the authors' released RoBERTa code (run_glue.py's defaults).

        Args:
            efficient: The released JAT†: graphs on the top queries only. (default: False)
            overrides: Fields to replace. Layers (1, 2, 6, 7, 10) want a model of 12 layers.

        Returns:
            The config.

        Raises:
            ValueError: If a field is unknown or out of its range.

        Example:
            >>> from jat_graph import JatConfig
            >>> config = JatConfig.released(layers=(0, 1))
            >>> config.threshold, config.hop_weights, config.heads
            (3.0, (0.5, 0.5), 'even:2')
        """
        preset: dict[str, Any] = {
            "threshold": 3.0,
            "hop_weights": (0.5, 0.5),
            "inclusive": True,
            "normalize_keys": True,
            "heads": "even:2",
            "layers": (1, 2, 6, 7, 10),
        }
        if efficient:
            preset |= {"nodes": "selected", "key_selection": "sampled_queries", "key_factor": 2.0}
        return cls._preset(preset, overrides)

    @classmethod
    def stones(cls, **overrides: Any) -> JatConfig:
        """Return the settings for jumps along stepping stones, learned from none at all.

        Every head of every layer jumps with strengths that begin at 0, so that a pretrained model
        is its base until training says otherwise.

        Args:
            overrides: Fields to replace.

        Returns:
            The config.

        Raises:
            ValueError: If a field is unknown or out of its range.

        Example:
            >>> from jat_graph import JatConfig
            >>> config = JatConfig.stones(hops=2)
            >>> config.graph, config.threshold, config.strength, config.heads
            ('stones', 1.0, 'learned', 'all')
        """
        return cls._preset({"graph": "stones", "heads": "all"}, overrides)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> JatConfig:
        """Return the config that :meth:`to_dict` described.

        Args:
            settings: Fields by name, and ``version``.

        Returns:
            The config.

        Raises:
            ValueError: If the version is newer than this library's, or a field is unknown.
        """
        settings = dict(settings)
        check_version(settings.pop("version", CONFIG_VERSION), CONFIG_VERSION)
        return cls._preset(settings, {})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, with the version; infinities become ``"inf"``.

        Returns:
            A dictionary that :meth:`from_dict` reads back to an equal config.
        """
        settings = asdict(self)
        untouched = all(settings[name] == _DEFAULTS[name] for name in SECOND_VERSION)
        if untouched:
            settings = {k: v for k, v in settings.items() if k not in SECOND_VERSION}
        settings = {"version": 1 if untouched else CONFIG_VERSION} | settings
        if isinstance(self.hop_weights, dict):
            settings["hop_weights"] = [[heads, w] for heads, w in self.hop_weights.items()]
        return dict(to_plain(settings))

    def save(self, path: str | Path) -> None:
        """Write the config as JSON; the file appears whole or not at all.

        Args:
            path: The file.

        Raises:
            OSError: If the file cannot be written.
        """
        write_text(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> JatConfig:
        """Read a config that :meth:`save` wrote.

        Args:
            path: The file.

        Returns:
            The config.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If it is no JSON object, or not a valid config.
        """
        return cls.from_dict(read_object(path, "config"))

    def attention_pattern(self) -> Pattern | None:
        """Return the pattern that limits where scores are read.

        Returns:
            The pattern; None if scores are read everywhere.
        """
        return None if self.pattern is None else read_pattern(str(self.pattern))

    @property
    def takes_edges(self) -> bool:
        """Tell whether the graph must be one of edges, to be pruned or for a layer of PyG."""
        return self.conv is not None or self.min_weight > 0 or self.max_neighbors is not None

    def head_indices(self, num_heads: int) -> tuple[int, ...]:
        """Return the heads that jump in a layer of ``num_heads``, in rising order.

        Args:
            num_heads: Heads of the layer.

        Returns:
            Indices from 0.

        Raises:
            ValueError: If the layer lacks one of them.
        """
        if isinstance(self.heads, tuple):
            chosen: Sequence[int] = self.heads
        elif self.heads == "all":
            chosen = range(num_heads)
        elif isinstance(self.heads, str):
            chosen = range(0, 2 * int(self.heads.removeprefix("even:")), 2)
        else:
            chosen = range(self.heads)
        if chosen and max(chosen) >= num_heads:
            raise ValueError(
                f"heads={self.heads!r} needs head {max(chosen)}, "
                f"but the model has {num_heads} heads (0 to {num_heads - 1})"
            )
        return tuple(chosen)

    def layer_indices(self, num_layers: int) -> tuple[int, ...]:
        """Return the layers that jump in a model of ``num_layers``, in rising order.

        Args:
            num_layers: Layers of the model.

        Returns:
            Indices from 0.

        Raises:
            ValueError: If the model lacks one of them.
        """
        layers = tuple(range(num_layers)) if self.layers is None else self.layers
        if layers and layers[-1] >= num_layers:
            raise ValueError(
                f"layers={self.layers!r} needs layer {layers[-1]}, "
                f"but the model has {num_layers} layers (0 to {num_layers - 1})"
            )
        return layers

    def for_layer(self, row: int, heads: tuple[int, ...]) -> JatConfig:
        """Return the config of one layer, over its jump heads only.

        Args:
            row: Position of the layer among those that jump: the table's row.
            heads: The heads that jump there; the table's columns.

        Returns:
            A config whose ``heads`` are ``range(len(heads))``, whose table has one row, and whose
            mapped ``hop_weights`` are keyed by position in ``heads``.

        Raises:
            ValueError: If the table or the mapping does not fit.
        """
        changes: dict[str, Any] = {"heads": len(heads), "layers": None}
        if isinstance(self.threshold, tuple):
            changes["threshold"] = (table_row(self.threshold, row, len(heads)),)
        if isinstance(self.hop_weights, dict):
            changes["hop_weights"] = hops_by_position(self.hop_weights, heads)
        return replace(self, **changes)

    def hop_groups(self, num_heads: int) -> dict[tuple[int, ...], HopWeights]:
        """Return the hop weights as a mapping that covers each of ``num_heads`` once.

        Args:
            num_heads: Heads of the tensors at hand.

        Returns:
            Tuples of heads and their weights.

        Raises:
            ValueError: If a mapping leaves a head out or names one that is not there.
        """
        heads = tuple(range(num_heads))
        weights = self.hop_weights
        return hops_by_position(weights, heads) if isinstance(weights, dict) else {heads: weights}

    def strengths(self) -> tuple[Triple, ...]:
        """Return θ of queries, keys and values for each hop, a number or ``"learned"`` each.

        Returns:
            As many triples as there are hops; none where the hop weights say it all.
        """
        strength = self.strength
        if strength is None:
            return ()
        if not isinstance(strength, tuple):
            return ((strength, strength, strength),) * self.hops
        nested = [entry for entry in strength if isinstance(entry, tuple)]
        return tuple(nested) or (strength,)  # type: ignore[return-value]

    @classmethod
    def _preset(cls, preset: Mapping[str, Any], overrides: Mapping[str, Any]) -> JatConfig:
        settings = {**preset, **overrides}
        if overrides.get("vote_rate") is not None:  # it replaces the preset's threshold
            settings["threshold"] = overrides.get("threshold")
        known = [field.name for field in fields(cls)]
        unknown = sorted(map(str, set(settings) - set(known)))
        if unknown:
            raise ValueError(f"unknown config field {unknown[0]!r}, wanted one of {known}")
        return cls(**settings)

    def _check_combinations(self) -> None:
        # The default cannot be told from the same number given, which nobody reads.
        if self.vote_rate is not None and self.threshold != THRESHOLDS[self.graph]:
            raise ValueError(f"threshold must be left alone with vote_rate, got {self.threshold!r}")
        if self.key_step is not None and self.key_selection != "strided":
            raise ValueError(f"key_step needs key_selection='strided', got {self.key_selection!r}")
        if self.key_step is not None and self.num_keys is not None:
            raise ValueError(
                f"num_keys must be None with key_step, which fixes the keys, got {self.num_keys}"
            )
        if self.soft_temperature is not None and self.backend not in ("auto", "dense"):
            raise ValueError(
                f"soft_temperature needs backend='dense' or 'auto', got {self.backend!r}"
            )
        self._refuse_of_other_graphs()
        self._check_strength()
        self._check_edges()

    def _refuse_of_other_graphs(self) -> None:
        """Refuse what only the other kind of graph knows."""
        other = "pairs" if self.graph == "stones" else "stones"
        for name in _ONLY[other]:
            if getattr(self, name) != _DEFAULTS[name]:
                raise ValueError(f"{name} needs graph={other!r}, got {getattr(self, name)!r}")
        if self.graph == "pairs":
            return
        if self.backend == "threshold":
            raise ValueError(
                f"backend must be 'auto', 'dense' or 'sparse' with stones, got {self.backend!r}"
            )
        if self.backend == "sparse" and self.incidence == "sigmoid":
            raise ValueError("incidence='sigmoid' needs backend='dense' or 'auto', got 'sparse'")
        if self.soft_temperature is not None and self.incidence != "sigmoid":
            raise ValueError(
                f"soft_temperature needs incidence='sigmoid' with stones, got {self.incidence!r}"
            )

    def _check_strength(self) -> None:
        if self.strength is None:
            if self.hops != 1:
                raise ValueError(f"hops needs a strength, or hop_weights, got hops={self.hops}")
            return
        if len(self.strengths()) != self.hops:
            raise ValueError(
                f"strength must have three numbers for each of {self.hops} hops, "
                f"got {self.strength!r}"
            )
        for name in ("hop_weights", "nodes"):
            if getattr(self, name) != _DEFAULTS[name]:
                raise ValueError(
                    f"{name} must be left alone with strength, got {getattr(self, name)!r}"
                )

    def _check_edges(self) -> None:
        if self.graph == "stones" or not self.takes_edges:
            return
        if self.backend not in ("auto", "sparse"):
            raise ValueError(
                "backend must be 'auto' or 'sparse' where edges are pruned or a layer runs on "
                f"them, got {self.backend!r}"
            )
        if self.soft_temperature is not None and (self.min_weight or self.max_neighbors):
            got = f"got soft_temperature={self.soft_temperature}"
            raise ValueError(f"min_weight and max_neighbors need hard votes, {got}")


_DEFAULTS = {field.name: field.default for field in fields(JatConfig)}
# What one kind of graph has and the other has not.
_ONLY = {
    "stones": ("incidence", "sides", "self_weight"),
    "pairs": (
        "vote_rate",
        "hop_weights",
        "same_sign_only",
        "normalize_keys",
        "inclusive",
        "nodes",
        "min_weight",
        "max_neighbors",
    ),
}


def check_config(config: object) -> None:
    """Refuse what is no config, with a ValueError."""
    if not isinstance(config, JatConfig):
        raise ValueError(f"config must be a JatConfig, got {type(config).__name__}")
