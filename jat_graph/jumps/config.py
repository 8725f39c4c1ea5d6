"""The settings of jump attention: frozen dataclasses, checked once, stored as JSON.

:class:`JatConfig` says which heads jump and how far; the class of its ``graph`` says along what.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.clusters.settings import ClusterGraph as ClusterGraph
from jat_graph.core.fields import (
    Settings,
    check_fields,
    check_layers,
    check_tokens,
    checked,
    integer,
    to_plain,
)
from jat_graph.core.files import read_object, write_text
from jat_graph.core.numbers import check_indices, check_inside, check_integer
from jat_graph.jumps.fields import (
    LEARNED,
    HopGroups,
    HopWeights,
    Strength,
    Triple,
    check_conv,
    check_heads,
    check_hop_weights,
    check_pattern,
    check_strength,
    hops_by_index,
)
from jat_graph.jumps.graph_config import GONE, GONE_SINCE, change_graph, check_graph, without_gone
from jat_graph.jumps.graph_config import GRAPHS as GRAPHS
from jat_graph.jumps.graph_config import Graph as Graph
from jat_graph.jumps.graph_config import PairGraph as PairGraph
from jat_graph.jumps.graph_config import StoneGraph as StoneGraph

if TYPE_CHECKING:
    from jat_graph.jumps.patterns.base import Pattern

CONFIG_VERSION = 3  # versions 1 and 2 had all fields in one object


@dataclass(frozen=True)
class JatConfig(Settings):
    r"""Which heads jump, along which graph, and how far.

    Args:
        graph: What a jump goes along: a :class:`PairGraph`, the paper's, a :class:`StoneGraph`, or
            a :class:`ClusterGraph`, which says where to look and takes none of the fields below but
            ``heads`` and ``layers``; their kinds, ``"pairs"``, ``"stones"`` and ``"clusters"``,
            stand for their defaults. (default: ``PairGraph()``)
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
        ValueError: If a field is out of its range, or two do not go together.

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

    graph: Graph = checked(PairGraph.kind, check_graph)
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
        self._check_graph()
        if isinstance(self.graph, ClusterGraph):
            return
        stones = isinstance(self.graph, StoneGraph)
        if self.strength is None and (stones or self.conv is not None):
            object.__setattr__(self, "strength", LEARNED)
        if self.strength is None and self.hops != 1:
            raise ValueError(f"hops needs a strength, or hop_weights, got hops={self.hops}")
        if self.strength is not None and len(self.strengths()) != self.hops:
            wanted = f"three numbers for each of {self.hops} hops"
            raise ValueError(f"strength must have {wanted}, got {self.strength!r}")
        if self.strength is not None and self.hop_weights != JatConfig.hop_weights:
            raise ValueError(f"hop_weights must not be set with strength, got {self.hop_weights!r}")
        if isinstance(self.graph, StoneGraph):
            return
        if self.strength is not None and self.graph.nodes != "all":
            raise ValueError(f"nodes must not be set with strength, got {self.graph.nodes!r}")
        if self.conv is not None and self.graph.backend not in ("auto", "sparse"):
            wanted = "'auto' or 'sparse' where a layer runs on edges"
            raise ValueError(f"backend must be {wanted}, got {self.graph.backend!r}")

    def _check_graph(self) -> None:
        for name, table in self.graph.tables().items():
            lengths = sorted({len(row) for row in table})
            if len(lengths) > 1 and self.heads != "all":  # of which some layers may have more
                raise ValueError(f"{name} needs rows of one length, or heads='all', got {lengths}")
        unused = ("hop_weights", "strength", "hops", "conv", "pattern", "excluded_token_ids")
        for name in unused if isinstance(self.graph, ClusterGraph) else ():
            value = getattr(self, name)
            if value != getattr(JatConfig, name):
                raise ValueError(f"{name} must not be set with graph='clusters', got {value!r}")

    @classmethod
    def paper(cls, **overrides: Any) -> JatConfig:
        """Return the paper's settings: ρ 6, one hop, 4 heads, all layers.

        Args:
            overrides: Fields in the place of these, as :meth:`replace` takes them.

        Returns:
            The config.

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
            overrides: Fields in the place of these. Layers (1, 2, 6, 7, 10) want a model of 12.

        Returns:
            The config.

        Example:
            >>> from jat_graph import JatConfig
            >>> config = JatConfig.released(layers=(0, 1))
            >>> config.graph.threshold, config.hop_weights, config.heads
            (3.0, (0.5, 0.5), 'even:2')
        """
        graph: dict[str, Any] = {"threshold": 3.0, "inclusive": True, "normalize_keys": True}
        if efficient:
            graph |= {"nodes": "selected", "key_selection": "sampled_queries", "key_factor": 2.0}
        layers = (1, 2, 6, 7, 10)
        preset = cls(PairGraph(**graph), heads="even:2", layers=layers, hop_weights=(0.5, 0.5))
        return preset.replace(**overrides)

    @classmethod
    def stones(cls, **overrides: Any) -> JatConfig:
        """Return the settings for jumps along stepping stones, learned from none at all.

        Every head of every layer jumps with strengths that begin at 0, so that a pretrained model
        is its base until training says otherwise.

        Args:
            overrides: Fields in the place of these.

        Returns:
            The config.

        Example:
            >>> from jat_graph import JatConfig
            >>> config = JatConfig.stones(hops=2)
            >>> config.graph.kind, config.graph.threshold, config.strength, config.heads
            ('stones', 1.0, 'learned', 'all')
        """
        return cls(StoneGraph(), heads="all").replace(**overrides)

    @classmethod
    def clustered(cls, **overrides: Any) -> JatConfig:
        """Return the settings for heads that are told by clusters where to look.

        Every head of every layer reads so; nothing is learned, and only memory and time change.

        Args:
            overrides: Fields in the place of these, those of :class:`ClusterGraph` among them.

        Returns:
            The config.

        Example:
            >>> from jat_graph import JatConfig
            >>> config = JatConfig.clustered(keys=64)
            >>> config.graph.kind, config.graph.keys, config.heads
            ('clusters', 64, 'all')
        """
        return cls(ClusterGraph(), heads="all").replace(**overrides)

    def replace(self, **changes: Any) -> JatConfig:
        """Return the config with other fields, its own or those of its graph.

        Args:
            changes: Fields by name; those of the graph may stand beside ``graph`` itself. A
                ``vote_rate`` takes the place of a threshold.

        Returns:
            The new config.

        Raises:
            ValueError: If a field is unknown, out of its range, or of another graph.
        """
        known = self.field_names()
        unknown = sorted(map(str, set(changes) - set(known)))
        if unknown:
            near = get_close_matches(unknown[0], known)
            wanted = f"did you mean {near[0]!r}?" if near else f"wanted one of {list(known)}"
            wanted = GONE_SINCE if unknown[0] in GONE else wanted
            raise ValueError(f"unknown config field {unknown[0]!r}, {wanted}")
        own = {name: value for name, value in changes.items() if name in self.names()}
        graph = check_graph("graph", own.pop("graph", self.graph))
        graph = change_graph(graph, {k: v for k, v in changes.items() if k not in self.names()})
        return dataclasses.replace(self, graph=graph, **own)

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        """Return the names that :meth:`replace` takes: the config's, then those of all graphs."""
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
            ValueError: If it is no dict, of a newer version, or a field of it is unknown.
        """
        settings = check_fields("config", settings)
        version = settings.pop("version", CONFIG_VERSION)
        if check_integer("config version", version, least=1) > CONFIG_VERSION:
            wanted = f"at most {CONFIG_VERSION} for this jat_graph"
            cure = "install a newer jat_graph"
            raise ValueError(f"config version must be {wanted}, got {version}; {cure}")
        return cls().replace(**(settings if version == CONFIG_VERSION else _from_flat(settings)))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, with the version; infinities become ``"inf"``."""
        settings = {name: getattr(self, name) for name in self.names()}
        settings["graph"] = {"kind": self.graph.kind, **dataclasses.asdict(self.graph)}
        if isinstance(self.hop_weights, dict):
            settings["hop_weights"] = [[heads, w] for heads, w in self.hop_weights.items()]
        return dict(to_plain({"version": CONFIG_VERSION, **settings}))

    def save(self, path: str | Path) -> None:
        """Write the config as JSON; the file appears whole or not at all."""
        write_text(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> JatConfig:
        """Read a config that :meth:`save` wrote; a ValueError says why a file is none."""
        return cls.from_dict(read_object(path, "config"))

    def attention_pattern(self) -> Pattern | None:
        """Return the pattern that limits where scores are read; None if none does."""
        from jat_graph.jumps.patterns import parse_pattern

        return None if self.pattern is None else parse_pattern(str(self.pattern))

    @property
    def jump_graph(self) -> PairGraph | StoneGraph:
        """The graph that jumps go along.

        Raises:
            ValueError: If it is one of clusters, which say where to look.
        """
        if isinstance(self.graph, ClusterGraph):
            cure = "use jat_graph.tree_graph or jat_graph.clustered_attention"
            raise ValueError(f"graph must be 'pairs' or 'stones' here, got 'clusters'; {cure}")
        return self.graph

    @property
    def cluster_graph(self) -> ClusterGraph:
        """The graph that says where to look.

        Raises:
            ValueError: If it is one that jumps go along.
        """
        if not isinstance(self.graph, ClusterGraph):
            raise ValueError(f"graph must be 'clusters' here, got {self.graph.kind!r}")
        return self.graph

    def head_indices(self, num_heads: int) -> tuple[int, ...]:
        """Return the heads that jump in a layer of ``num_heads``, in rising order.

        Args:
            num_heads: Heads of the layer.

        Returns:
            Indices from 0.

        Raises:
            ValueError: If the layer lacks one of them, and some could change anything.
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
            moved = any(map(any, self.strengths())) if self.strengths() else self.hop_weights
            if moved in (False, (1.0,)):  # where nothing jumps, any heads will do
                return tuple(range(num_heads))
            got = f"the model has {num_heads} heads (0 to {num_heads - 1})"
            raise ValueError(f"heads={self.heads!r} needs head {max(chosen)}, but {got}")
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
        return check_layers(self.layers, num_layers)

    def for_layer(self, row: int, heads: tuple[int, ...]) -> JatConfig:
        """Return the config of one layer, over its jump heads only.

        Args:
            row: Index of the layer among those that jump: the table's row.
            heads: The heads that jump there; the table's columns.

        Returns:
            A config whose ``heads`` are ``range(len(heads))``, whose table has one row, and whose
            mapped ``hop_weights`` are keyed by index into ``heads``.
        """
        weights = self.hop_weights
        return dataclasses.replace(
            self,
            graph=self.graph.for_layer(row, len(heads)),
            heads=len(heads),
            layers=None,
            hop_weights=hops_by_index(weights, heads) if isinstance(weights, dict) else weights,
        )

    def hop_groups(self, num_heads: int) -> HopGroups:
        """Return the hop weights as a mapping from tuples of heads, each of them once."""
        heads = tuple(range(num_heads))
        weights = self.hop_weights
        return hops_by_index(weights, heads) if isinstance(weights, dict) else {heads: weights}

    def strengths(self) -> tuple[Triple, ...]:
        """Return θ of queries, keys and values for each hop; none where hop weights say it all."""
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
    settings = without_gone(settings)
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


def check_calibration(
    config: JatConfig, density: float | None = None, tolerance: float | None = None
) -> None:
    """Refuse what nothing can be measured for."""
    if density is not None and (not isinstance(density, int | float) or not 0 < density < 1):
        raise ValueError(f"density must be in (0, 1), got {density!r}")
    if tolerance is not None:
        check_inside("tolerance", tolerance, 0.0, math.inf)
    if isinstance(config.graph, ClusterGraph):
        if density is not None:
            raise ValueError("density needs graph='pairs', got 'clusters'; give a tolerance")
        return
    if tolerance is not None:
        raise ValueError(f"tolerance needs graph='clusters', got {config.graph.kind!r}")
    if isinstance(config.graph, StoneGraph):
        why = "their threshold, in standard deviations, fits every head"
        raise ValueError(f"graph must be 'pairs' to calibrate, got 'stones'; {why}")
    if config.graph.vote_rate is not None:
        raise ValueError(f"vote_rate must be None to calibrate, got {config.graph.vote_rate}")


def config_of_head(config: JatConfig, index: int, num_heads: int) -> JatConfig:
    """Return the config of one head of a layer whose heads are ``range(num_heads)``."""
    groups = config.hop_groups(num_heads).items()
    return dataclasses.replace(
        config,
        graph=config.graph.of_head(index, num_heads),
        heads=1,
        hop_weights=next(weights for group, weights in groups if index in group),
    )


def check_config(config: object) -> None:
    """Refuse what is no config, with a ValueError."""
    if not isinstance(config, JatConfig):
        raise ValueError(f"config must be a JatConfig, got {type(config).__name__}")


def check_clusters(config: object) -> None:
    """Refuse what is no config of clusters, with a ValueError."""
    check_config(config)
    assert isinstance(config, JatConfig)
    config.cluster_graph  # noqa: B018
