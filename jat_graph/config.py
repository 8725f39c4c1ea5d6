"""The settings of jump attention: frozen dataclasses, checked once, stored as JSON.

:class:`JatConfig` says which heads jump and how far; the class of its ``graph`` says along what.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from jat_graph.checks.numbers import check_indices
from jat_graph.config_fields import (
    LEARNED,
    HopGroups,
    HopWeights,
    Settings,
    Strength,
    Table,
    Triple,
    check_conv,
    check_heads,
    check_hop_weights,
    check_pattern,
    check_strength,
    check_threshold,
    check_tokens,
    check_version,
    checked,
    flag,
    hops_by_index,
    inside,
    integer,
    number,
    one_of,
    read_pattern,
    to_plain,
)
from jat_graph.files import read_object, write_text

if TYPE_CHECKING:
    from jat_graph.patterns.base import Pattern

CONFIG_VERSION = 3  # versions 1 and 2 had all fields in one object
SELECTIONS = ("all", "significance", "sampled", "strided", "sampled_queries")


@dataclass(frozen=True)
class ScoreGraph(Settings):
    """What graphs of single scores have in common: a threshold, and which keys count."""

    kind: ClassVar[str]

    threshold: float | Table = checked(0.0, check_threshold)
    key_selection: str = one_of(*SELECTIONS)
    num_keys: int | None = integer(None, least=1)
    key_factor: float = inside(5.0, 0.0)
    key_step: int | None = integer(None, least=1)
    soft_temperature: float | None = inside(None, 0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key_step is not None and self.key_selection != "strided":
            raise ValueError(f"key_step needs key_selection='strided', got {self.key_selection!r}")
        if self.key_step is not None and self.num_keys is not None:
            raise ValueError(
                f"num_keys must be None with key_step, which fixes the keys, got {self.num_keys}"
            )

    def thresholds(self, num_heads: int) -> tuple[float, ...]:
        """Return the threshold of each head: the number, or the table's only row.

        Args:
            num_heads: Heads of the tensors at hand.

        Returns:
            As many numbers.

        Raises:
            ValueError: If the table is not one row of as many numbers.
        """
        if not isinstance(self.threshold, tuple):
            return (self.threshold,) * num_heads
        if len(self.threshold) != 1:
            raise ValueError(
                f"threshold table must have one row for one layer, got {len(self.threshold)}"
            )
        return self._row(0, num_heads)

    def for_layer(self, row: int, num_heads: int) -> ScoreGraph:
        """Return the settings of one layer, whose table has one row.

        Args:
            row: Index of the layer among those that jump.
            num_heads: Heads that jump there.

        Returns:
            The settings.

        Raises:
            ValueError: If the table does not fit.
        """
        if not isinstance(self.threshold, tuple):
            return self
        return dataclasses.replace(self, threshold=(self._row(row, num_heads),))

    def _row(self, row: int, num_heads: int) -> tuple[float, ...]:
        table = self.threshold
        assert isinstance(table, tuple)
        if row >= len(table):
            raise ValueError(f"threshold needs a row for jump layer {row}, got {len(table)} rows")
        if len(table[row]) != num_heads:
            raise ValueError(
                f"threshold row {row} must have {num_heads} entries, one for each jump head, "
                f"got {len(table[row])}"
            )
        return table[row]


@dataclass(frozen=True)
class PairGraph(ScoreGraph):
    r"""The paper's graph: tokens that score a key alike are joined.

    Args:
        threshold: ρ of Eq. 2, at least 0, in units of squared scaled scores. A number, or the table
            ``[jump layer][jump head]`` that :func:`jat_graph.calibrate` returns. (default: 6.0)
        key_selection: Which keys vote: ``"all"``, ``"significance"`` (JAT†, Eq. 8), ``"sampled"``
            (the same over sampled queries), ``"strided"``, or ``"sampled_queries"`` (the released
            code's JAT†: the positions of the top queries over sampled keys). (default: "all")
        num_keys: Number U of voting keys, capped at the sequence's length. (default: None, which
            means ``ceil(key_factor * ln(n))``)
        key_factor: Factor c of U = ⌈c·ln n⌉, above 0. (default: 5.0)
        key_step: Step of ``"strided"`` in valid positions; a causal model needs it.
            (default: None, which spreads U keys evenly)
        soft_temperature: τ of the differentiable vote sigmoid((X_ij X_kj − ρ)/τ), above 0.
            (default: None, hard votes)
        vote_rate: In the place of ``threshold``, the ρ that lets this share of the products vote,
            measured per sequence and head; in (0, 1). (default: None)
        same_sign_only: Two negative scores do not vote. (default: False)
        normalize_keys: Divide the product by max(1, ‖K_j‖). (default: False)
        inclusive: Vote when the product equals ρ, too. (default: False)
        nodes: ``"all"`` tokens are nodes of the graph, or only the ``"selected"`` voting positions.
            (default: "all")
        standardize: Vote by standard scores: centred, and in standard deviations of their sequence
            and head. (default: False)
        min_weight: Drop edges of less weight. (default: 0.0)
        max_neighbors: Keep the heaviest edges into each token, and their reverse where it exists.
            (default: None, which keeps all)
        backend: ``"dense"``, ``"sparse"``, ``"threshold"``, or ``"auto"``. (default: "auto")

    Raises:
        ValueError: If a field is out of its range, or two do not go together; the message names
            field, wanted and got.

    Reference:
        Eq. 2 to 4 and 8 of the JAT paper; the variants are those of its released code.

    Example:
        >>> from jat_graph import PairGraph
        >>> PairGraph(threshold=-1.0)
        Traceback (most recent call last):
        ValueError: threshold must be at least 0, got -1.0
    """

    kind: ClassVar[str] = "pairs"

    threshold: float | Table = checked(6.0, check_threshold)
    vote_rate: float | None = inside(None, 0.0, 1.0)
    same_sign_only: bool = flag()
    normalize_keys: bool = flag()
    inclusive: bool = flag()
    nodes: str = one_of("all", "selected")
    standardize: bool = flag()
    min_weight: float = number(0.0, least=0.0)
    max_neighbors: int | None = integer(None, least=1)
    backend: str = one_of("auto", "dense", "sparse", "threshold")

    def __post_init__(self) -> None:
        super().__post_init__()
        # The default cannot be told from the same number given, which nobody reads.
        if self.vote_rate is not None and self.threshold != PairGraph.threshold:
            raise ValueError(f"threshold must be left alone with vote_rate, got {self.threshold!r}")
        if self.soft_temperature is not None and self.backend not in ("auto", "dense"):
            raise ValueError(
                f"soft_temperature needs backend='dense' or 'auto', got {self.backend!r}"
            )
        pruned = self.min_weight > 0 or self.max_neighbors is not None
        if pruned and self.soft_temperature is not None:
            got = f"got soft_temperature={self.soft_temperature}"
            raise ValueError(f"min_weight and max_neighbors need hard votes, {got}")
        if pruned and self.backend not in ("auto", "sparse"):
            raise ValueError(
                f"backend must be 'auto' or 'sparse' where edges are pruned, got {self.backend!r}"
            )


@dataclass(frozen=True)
class StoneGraph(ScoreGraph):
    r"""Tokens and their stepping stones: the keys that they score unusually high.

    Args:
        threshold: t, at least 0, in standard deviations of the scores of a sequence and head. A
            number, or a table ``[jump layer][jump head]``. (default: 1.0)
        key_selection: Which keys may be stones, as for :class:`PairGraph`. (default: "all")
        num_keys: Number U of such keys, capped at the sequence's length. (default: None, which
            means ``ceil(key_factor * ln(n))``)
        key_factor: Factor c of U = ⌈c·ln n⌉, above 0. (default: 5.0)
        key_step: Step of ``"strided"`` in valid positions; a causal model needs it.
            (default: None, which spreads U keys evenly)
        soft_temperature: τ of the incidence ``"sigmoid"``, above 0. (default: None, which means
            0.5)
        incidence: How a token of standard score z stands on a stone: ``"excess"`` max(0, z − t),
            ``"hard"`` 1[z > t], or ``"sigmoid"`` σ((z − t)/τ). (default: "excess")
        sides: ``"both"``: unusually low scores link, too, to stones of their own; or
            ``"positive"``. (default: "both")
        self_weight: ε, the weight with which a token stays where it is, at least 0. (default: 0.1)
        backend: ``"dense"``, ``"sparse"``, or ``"auto"``. (default: "auto")

    Raises:
        ValueError: If a field is out of its range, or two do not go together; the message names
            field, wanted and got.

    Reference:
        This library's own; a hypergraph random walk, Zhou, Huang and Schölkopf, *Learning with
        Hypergraphs*, NeurIPS 2006, whose hyperedges are keys.
    """

    kind: ClassVar[str] = "stones"

    threshold: float | Table = checked(1.0, check_threshold)
    incidence: str = one_of("excess", "hard", "sigmoid")
    sides: str = one_of("both", "positive")
    self_weight: float = number(0.1, least=0.0)
    backend: str = one_of("auto", "dense", "sparse")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend == "sparse" and self.incidence == "sigmoid":
            raise ValueError("incidence='sigmoid' needs backend='dense' or 'auto', got 'sparse'")
        if self.soft_temperature is not None and self.incidence != "sigmoid":
            raise ValueError(
                f"soft_temperature needs incidence='sigmoid' with stones, got {self.incidence!r}"
            )


Graph: TypeAlias = PairGraph | StoneGraph
GRAPHS: dict[str, type[Graph]] = {cls.kind: cls for cls in (PairGraph, StoneGraph)}


def _check_graph(name: str, value: Any) -> Graph:
    """Return the settings of a graph: they themselves, its kind, or what JSON says of it."""
    if isinstance(value, PairGraph | StoneGraph):
        return value
    settings = dict(value) if isinstance(value, Mapping) else {"kind": value}
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in GRAPHS:
        wanted = " or ".join(f"a {cls.__name__}" for cls in GRAPHS.values())
        raise ValueError(f"{name} must be {wanted}, or {' or '.join(GRAPHS)}, got {value!r}")
    return _changed(GRAPHS[kind](), settings)


def _changed(graph: Graph, changes: Mapping[str, Any]) -> Graph:
    """Return a graph with other fields; ``vote_rate`` takes the place of a threshold."""
    for name in changes:
        if name not in graph.names():
            owners = [cls.kind for cls in GRAPHS.values() if name in cls.names()]
            if owners:
                raise ValueError(f"{name} needs graph={owners[0]!r}, got {graph.kind!r}")
            raise ValueError(f"unknown config field {name!r}, wanted one of {graph.names()}")
    if changes.get("vote_rate") is not None and "threshold" not in changes:
        changes = {**changes, "threshold": PairGraph.threshold}
    return dataclasses.replace(graph, **changes)


@dataclass(frozen=True)
class JatConfig(Settings):
    r"""Which heads jump, along which graph, and how far.

    Args:
        graph: What a jump goes along: a :class:`PairGraph`, the paper's, or a :class:`StoneGraph`;
            their kinds, ``"pairs"`` and ``"stones"``, stand for their defaults.
            (default: ``PairGraph()``)
        heads: Which heads jump: a number (the first n), ``"all"``, ``"even:n"`` (heads 0, 2, 4 …)
            or indices. (default: 4)
        layers: Indices of the layers that jump, from 0; None for all. (default: None)
        hop_weights: Weight of each hop, index = hop: ``(1,)`` is ordinary attention, ``(0, 1)`` the
            paper's jump attention, ``(0.5, 0.5)`` the released code's mixture. Or a mapping from
            tuples of heads to such weights. (default: (0.0, 1.0))
        strength: θ, how strongly each hop changes queries, keys and values: ``"learned"``, a
            number, or three of either; with more hops, a tuple of three for each. With pairs it
            replaces ``hop_weights``. (default: None, which with stones or ``conv`` means "learned")
        hops: Number of hops, with a strength each. (default: 1)
        conv: A layer of ``torch_geometric.nn`` or :mod:`jat_graph.nn` that queries, keys and values
            go through, in the place of a product by Â or P: its name, or ``{"layer": name}`` with
            its arguments; its numbers of channels, where it has any, are the heads'. It takes a
            strength. (default: None; ``"given"`` where :func:`jat_graph.attach` got a layer that no
            settings can build)
        pattern: Where scores are read, though not votes: a :class:`jat_graph.patterns.Pattern` or
            its spec, as ``"window:256+global:1"``, which is kept. (default: None, everywhere)
        excluded_token_ids: Token ids that never vote and are never stones, as ``[CLS]`` and
            ``[SEP]``. (default: none)
        seed: Seed of every sample that is drawn. (default: 0)

    Raises:
        ValueError: If a field is out of its range, or two do not go together; the message names
            field, wanted and got.

    Reference:
        Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*,
        NeurIPS 2022. Stones are this library's own.

    Example:
        >>> from jat_graph import JatConfig, PairGraph
        >>> config = JatConfig(PairGraph(vote_rate=0.05), heads=2, pattern="window:256+global:1")
        >>> config.hop_weights
        (0.0, 1.0)
        >>> JatConfig.from_dict(config.to_dict()) == config
        True
    """

    graph: Graph = dataclasses.field(default_factory=PairGraph, metadata={"check": _check_graph})
    heads: int | str | tuple[int, ...] = checked(4, check_heads)
    layers: tuple[int, ...] | None = checked(None, check_indices)
    hop_weights: HopWeights | HopGroups = checked((0.0, 1.0), check_hop_weights)
    strength: Strength | Triple | tuple[Triple, ...] | None = checked(None, check_strength)
    hops: int = integer(1, least=1)
    conv: str | dict[str, Any] | None = checked(None, check_conv)
    pattern: str | Pattern | None = checked(None, check_pattern)
    excluded_token_ids: tuple[int, ...] = checked((), check_tokens)
    seed: int = integer(0, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        stones = isinstance(self.graph, StoneGraph)
        if self.strength is None and (stones or self.conv is not None):
            object.__setattr__(self, "strength", LEARNED)
        if self.strength is None and self.hops != 1:
            raise ValueError(f"hops needs a strength, or hop_weights, got hops={self.hops}")
        if self.strength is not None and len(self.strengths()) != self.hops:
            raise ValueError(
                f"strength must have three numbers for each of {self.hops} hops, "
                f"got {self.strength!r}"
            )
        if self.strength is not None and self.hop_weights != JatConfig.hop_weights:
            raise ValueError(
                f"hop_weights must be left alone with strength, got {self.hop_weights!r}"
            )
        if isinstance(self.graph, StoneGraph):
            return
        if self.strength is not None and self.graph.nodes != "all":
            raise ValueError(f"nodes must be left alone with strength, got {self.graph.nodes!r}")
        if self.conv is not None and self.graph.backend not in ("auto", "sparse"):
            raise ValueError(
                "backend must be 'auto' or 'sparse' where a layer runs on edges, "
                f"got {self.graph.backend!r}"
            )

    @classmethod
    def paper(cls, **overrides: Any) -> JatConfig:
        """Return the paper's settings: ρ 6, one hop, 4 heads, all layers.

        Args:
            overrides: Fields to replace, of the config or of its graph.

        Returns:
            The config.

        Raises:
            ValueError: If a field is unknown or out of its range.

        Example:
            >>> from jat_graph import JatConfig, PairGraph
            >>> JatConfig.paper() == JatConfig(PairGraph(threshold=6.0), heads=4)
            True
        """
        return cls().replace(**overrides)

    @classmethod
    def released(cls, *, efficient: bool = False, **overrides: Any) -> JatConfig:
        """Return the settings of the authors' released RoBERTa code (run_glue.py's defaults).

        Args:
            efficient: The released JAT†: graphs on the top queries only. (default: False)
            overrides: Fields to replace, of the config or of its graph. Layers (1, 2, 6, 7, 10)
                want a model of 12 layers.

        Returns:
            The config.

        Raises:
            ValueError: If a field is unknown or out of its range.

        Example:
            >>> from jat_graph import JatConfig
            >>> config = JatConfig.released(layers=(0, 1))
            >>> config.graph.threshold, config.hop_weights, config.heads
            (3.0, (0.5, 0.5), 'even:2')
        """
        graph: dict[str, Any] = {"threshold": 3.0, "inclusive": True, "normalize_keys": True}
        if efficient:
            graph |= {"nodes": "selected", "key_selection": "sampled_queries", "key_factor": 2.0}
        preset = cls(
            PairGraph(**graph),
            hop_weights=(0.5, 0.5),
            heads="even:2",
            layers=(1, 2, 6, 7, 10),
        )
        return preset.replace(**overrides)

    @classmethod
    def stones(cls, **overrides: Any) -> JatConfig:
        """Return the settings for jumps along stepping stones, learned from none at all.

        Every head of every layer jumps with strengths that begin at 0, so that a pretrained model
        is its base until training says otherwise.

        Args:
            overrides: Fields to replace, of the config or of its graph.

        Returns:
            The config.

        Raises:
            ValueError: If a field is unknown or out of its range.

        Example:
            >>> from jat_graph import JatConfig
            >>> config = JatConfig.stones(hops=2)
            >>> config.graph.kind, config.graph.threshold, config.strength, config.heads
            ('stones', 1.0, 'learned', 'all')
        """
        return cls(StoneGraph(), heads="all").replace(**overrides)

    def replace(self, **changes: Any) -> JatConfig:
        """Return the config with other fields, its own or those of its graph.

        Args:
            changes: Fields by name; those of the graph may stand beside ``graph`` itself. A
                ``vote_rate`` takes the place of a threshold.

        Returns:
            The new config.

        Raises:
            ValueError: If a field is unknown, out of its range, or of another graph.

        Example:
            >>> from jat_graph import JatConfig
            >>> JatConfig().replace(threshold=4.0, heads=2).graph.threshold
            4.0
        """
        known = self.field_names()
        unknown = sorted(map(str, set(changes) - set(known)))
        if unknown:
            raise ValueError(f"unknown config field {unknown[0]!r}, wanted one of {list(known)}")
        own = {name: value for name, value in changes.items() if name in self.names()}
        graph = _check_graph("graph", own.pop("graph", self.graph))
        graph = _changed(graph, {k: v for k, v in changes.items() if k not in self.names()})
        return dataclasses.replace(self, graph=graph, **own)

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the names that :meth:`replace` takes.

        Returns:
            Those of the config, then those of all kinds of graphs.
        """
        names = [*cls.names(), *(name for graph in GRAPHS.values() for name in graph.names())]
        return tuple(dict.fromkeys(names))

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> JatConfig:
        """Return the config that :meth:`to_dict` described, in this version or an older one.

        Args:
            settings: Fields by name, and ``version``.

        Returns:
            The config.

        Raises:
            ValueError: If the version is newer than this library's, or a field is unknown.
        """
        settings = dict(settings)
        version = settings.pop("version", CONFIG_VERSION)
        check_version(version, CONFIG_VERSION)
        return cls().replace(**(settings if version == CONFIG_VERSION else _from_flat(settings)))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, with the version; infinities become ``"inf"``.

        Returns:
            A dictionary that :meth:`from_dict` reads back to an equal config.
        """
        settings = {name: getattr(self, name) for name in self.names()}
        settings["graph"] = {"kind": self.graph.kind, **dataclasses.asdict(self.graph)}
        if isinstance(self.hop_weights, dict):
            settings["hop_weights"] = [[heads, w] for heads, w in self.hop_weights.items()]
        return dict(to_plain({"version": CONFIG_VERSION, **settings}))

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
            row: Index of the layer among those that jump: the table's row.
            heads: The heads that jump there; the table's columns.

        Returns:
            A config whose ``heads`` are ``range(len(heads))``, whose table has one row, and whose
            mapped ``hop_weights`` are keyed by index into ``heads``.

        Raises:
            ValueError: If the table or the mapping does not fit.
        """
        weights = self.hop_weights
        return dataclasses.replace(
            self,
            graph=self.graph.for_layer(row, len(heads)),  # type: ignore[arg-type]
            heads=len(heads),
            layers=None,
            hop_weights=hops_by_index(weights, heads) if isinstance(weights, dict) else weights,
        )

    def hop_groups(self, num_heads: int) -> HopGroups:
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
        return hops_by_index(weights, heads) if isinstance(weights, dict) else {heads: weights}

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


def _from_flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of versions 1 and 2, in which all kinds of graphs had all fields."""
    graph = GRAPHS.get(str(settings.get("graph", PairGraph.kind)), PairGraph)
    if "silent_tokens" in settings:
        settings["excluded_token_ids"] = settings.pop("silent_tokens")
    if settings.get("threshold", 0) is None:
        del settings["threshold"]
    if graph is StoneGraph:
        settings.pop("standardize", None)  # which it always was
    defaults = {e.name: e.default for cls in GRAPHS.values() for e in dataclasses.fields(cls)}
    others = set(defaults) - set(graph.names())
    return {
        name: value
        for name, value in settings.items()
        if name not in others or value != defaults[name]
    }


def check_calibration(density: Any, config: JatConfig) -> None:
    """Refuse what no thresholds can be measured for."""
    if not isinstance(density, int | float) or not 0 < density < 1:
        raise ValueError(f"density must be in (0, 1), got {density!r}")
    graph = config.graph
    if isinstance(graph, StoneGraph):
        raise ValueError(
            "graph must be 'pairs' to calibrate, got 'stones'; "
            "their threshold, in standard deviations, fits every head"
        )
    if graph.vote_rate is not None:
        raise ValueError(f"vote_rate must be None to calibrate, got {graph.vote_rate}")


def check_config(config: object) -> None:
    """Refuse what is no config, with a ValueError."""
    if not isinstance(config, JatConfig):
        raise ValueError(f"config must be a JatConfig, got {type(config).__name__}")
