"""The settings of each kind of graph: a class with its own fields and checks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from jat_graph.checks.numbers import check_flag, check_integer
from jat_graph.clusters.choice import Rule
from jat_graph.clusters.tree import check_segment
from jat_graph.config_fields import (
    Settings,
    Table,
    check_table,
    check_threshold,
    checked,
    flag,
    inside,
    integer,
    number,
    one_of,
)


def table_row(name: str, table: Table, row: int, num_heads: int) -> tuple[float, ...]:
    """Return a row of a table ``[jump layer][jump head]``, which must fit."""
    if row >= len(table):
        raise ValueError(f"{name} needs a row for jump layer {row}, got {len(table)} rows")
    if len(table[row]) != num_heads:
        raise ValueError(
            f"{name} row {row} must have {num_heads} entries, one for each jump head, "
            f"got {len(table[row])}"
        )
    return table[row]


class GraphSettings(Settings):
    """The settings of a graph, some of which may be tables ``[jump layer][jump head]``."""

    def tables(self) -> dict[str, Table]:
        """Return the fields that are tables."""
        return {name: value for name, value in vars(self).items() if isinstance(value, tuple)}

    def rows(self, num_heads: int) -> dict[str, tuple[float, ...]]:
        """Return the row of each table, which must have one only: that of one layer."""
        for name, table in self.tables().items():
            if len(table) != 1:
                raise ValueError(f"{name} table must have one row for one layer, got {len(table)}")
        return {name: table_row(name, t, 0, num_heads) for name, t in self.tables().items()}

    def for_layer(self, row: int, num_heads: int) -> Any:
        """Return the settings of one layer, by its place among those that have some."""
        tables = self.tables().items()
        rows: Any = {name: (table_row(name, table, row, num_heads),) for name, table in tables}
        return dataclasses.replace(self, **rows)  # type: ignore[type-var]


SELECTIONS = ("all", "significance", "sampled", "strided", "sampled_queries")


@dataclass(frozen=True)
class ScoreGraph(GraphSettings):
    """What graphs of single scores have in common: a threshold, and which keys count."""

    kind: ClassVar[str]

    threshold: float | Table = checked(0.0, check_threshold)
    key_selection: str = one_of(*SELECTIONS)
    num_keys: int | None = integer(None, least=1)
    key_factor: float = inside(5.0)
    key_step: int | None = integer(None, least=1)
    soft_temperature: float | None = inside(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key_step is not None and self.key_selection != "strided":
            raise ValueError(f"key_step needs key_selection='strided', got {self.key_selection!r}")
        if self.key_step is not None and self.num_keys is not None:
            raise ValueError(
                f"num_keys must be None with key_step, which fixes the keys, got {self.num_keys}"
            )

    def thresholds(self, num_heads: int) -> tuple[float, ...]:
        """Return the threshold of each head: the number, or the row of a table that has one."""
        row = self.rows(num_heads).get("threshold")
        return (self.threshold,) * num_heads if row is None else row  # type: ignore[return-value]


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
        max_neighbors: Keep the heaviest edges into each token, and their reverse where it exists.
            (default: None, which keeps all)
        backend: ``"dense"``, ``"sparse"``, ``"threshold"``, or ``"auto"``. (default: "auto")

    Raises:
        ValueError: If a field is out of its range, or two do not go together.

    Reference:
        Eq. 2 to 4 and 8 of the JAT paper; the variants are those of its released code.
    """

    kind: ClassVar[str] = "pairs"

    threshold: float | Table = checked(6.0, check_threshold)
    vote_rate: float | None = inside(None, 1.0)
    same_sign_only: bool = flag()
    normalize_keys: bool = flag()
    inclusive: bool = flag()
    nodes: str = one_of("all", "selected")
    standardize: bool = flag()
    max_neighbors: int | None = integer(None, least=1)
    backend: str = one_of("auto", "dense", "sparse", "threshold")

    def __post_init__(self) -> None:
        super().__post_init__()
        # The default cannot be told from the same number given, which nobody reads.
        if self.vote_rate is not None and self.threshold != PairGraph.threshold:
            raise ValueError(f"threshold must not be set with vote_rate, got {self.threshold!r}")
        if self.soft_temperature is not None and self.backend not in ("auto", "dense"):
            raise ValueError(
                f"soft_temperature needs backend='dense' or 'auto', got {self.backend!r}"
            )
        if self.max_neighbors is None:
            return
        if self.soft_temperature is not None:
            got = f"got soft_temperature={self.soft_temperature}"
            raise ValueError(f"max_neighbors needs hard votes, {got}")
        if self.backend not in ("auto", "sparse"):
            raise ValueError(
                f"backend must be 'auto' or 'sparse' where edges are pruned, got {self.backend!r}"
            )


@dataclass(frozen=True)
class StoneGraph(ScoreGraph):
    r"""Tokens and their stepping stones: the keys that they score unusually high.

    Args:
        threshold: t, at least 0, in standard deviations of the scores of a sequence and head. A
            number, or a table ``[jump layer][jump head]``. (default: 1.0)
        key_selection, num_keys, key_factor, key_step: Which keys may be stones, as for the votes of
            :class:`PairGraph`.
        soft_temperature: τ of the incidence ``"sigmoid"``, above 0. (default: None, which means
            0.5)
        incidence: How a token of standard score z stands on a stone: ``"excess"`` max(0, z − t),
            ``"hard"`` 1[z > t], or ``"sigmoid"`` σ((z − t)/τ). (default: "excess")
        sides: ``"both"``: unusually low scores link, too, to stones of their own; or
            ``"positive"``. (default: "both")
        self_weight: ε, the weight with which a token stays where it is, at least 0. (default: 0.1)
        backend: ``"dense"``, ``"sparse"``, or ``"auto"``. (default: "auto")

    Raises:
        ValueError: If a field is out of its range, or two do not go together.

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


# How heads of encoders read, and those in causal order, where settings do not say it. They are from
# measurements; below so many tokens SDPA is faster. One number, so that a model in evaluation reads
# as it was trained.
MEASURED = {
    False: Rule(keys=128, groups=16, window=0, dense_below=4096, causal=False),
    True: Rule(dense_below=4096),
}
NEVER = 2**40  # tokens, which no sequence has


def _of_heads(default: float | None, least: int, most: float = 2**31 - 1) -> Any:
    """Return a field that is an integer, inf where that is the most, or a table of them."""
    # Where None is the default, it may stand in a table, too.

    def check_one(name: str, value: Any) -> Any:
        if value is None and default is None:
            return None
        value = math.inf if value == "inf" else value
        return value if value == math.inf == most else check_integer(name, value, least=least)

    def check(name: str, value: Any) -> Any:
        return check_table(name, value, check_one)

    return checked(default, check)


@dataclass(frozen=True)
class ClusterGraph(GraphSettings):
    r"""How heads read long inputs: along a tree of clusters of keys.

    Near keys form clusters, near clusters form groups, and so on, and each token descends this tree
    for itself: it reads the best clusters exactly, and all others by the means of the nodes that it
    did not open. All tokens read the first four keys exactly; in causal order, as **decoders** have
    it, the last ones before their own, too, and in an **encoder** those few at the end of a
    sequence that make no cluster.

    Fields that may be a table ``[layer][head]``, as :func:`jat_graph.calibrate` returns it, are
    ``keys``, ``groups``, ``dense_below`` and ``margin``.

    Args:
        keys: How many keys a token reads exactly at most beside those that all read, by whole
            clusters; a multiple of ``size``, or it is rounded up to one. (default: None, which
            means 128; 512 in causal order)
        dense_below: Sequences of fewer tokens are read densely, by SDPA; ``math.inf`` for all of
            them. In causal order it is the first token that meets a cluster. (default: None, as
            measured)
        propagate: Read what is not read exactly by means; or else not at all. (default: True)
        groups: How many nodes a token opens at most of each level above clusters. (default: None,
            which means 16; 32 in causal order)
        size: Keys of a cluster. (default: 8)
        segment: In causal order, keys that are clustered together, as soon as there are so many:
            ``size`` times a power of two. (default: 512)
        window: In causal order, last keys that are in no cluster yet, and are read exactly.
            (default: 64)
        margin: How far below the best score that a token meets the likely best key of a node may
            be, if the node is opened or read; ``math.inf`` for no bound. (default: 8.0)

    Raises:
        ValueError: If a field is out of its range.

    Reference:
        This library's own: clusters of keys whose centroids stand for what is not read, as in
        Multipole Attention (Hooper et al., NeurIPS 2025), in a tree, in encoders, prefill and
        training as in generation.
    """

    kind: ClassVar[str] = "clusters"

    keys: int | Table | None = _of_heads(None, least=0)
    dense_below: float | Table | None = _of_heads(None, least=0, most=math.inf)
    propagate: bool = checked(True, check_flag)
    groups: int | Table | None = _of_heads(None, least=1)
    size: int = integer(8, least=1)
    segment: int = integer(512, least=1)
    window: int = integer(64, least=1)
    margin: float | Table = checked(8.0, check_threshold)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_segment(self.size, self.segment)

    def of_head(self, head: int, num_heads: int) -> ClusterGraph:
        """Return the settings of one head of a layer, without tables."""
        own: Any = {name: row[head] for name, row in self.rows(num_heads).items()}
        return dataclasses.replace(self, **own)

    def rule(self, causal: bool) -> Rule:
        """Return how tokens of a head descend the tree of their keys; no field may be a table."""
        measured, given = MEASURED[causal], {"rest": self.propagate}
        given |= {name: own for name, own in vars(self).items() if name in measured._fields}
        rule = measured._replace(**{name: own for name, own in given.items() if own is not None})
        # An encoder's rule counts from the last token.
        first = int(min(rule.dense_below, NEVER)) - (not causal)
        window = rule.window if causal else measured.window
        return rule._replace(dense_below=max(0, first), window=window)

    def rules(self, num_heads: int, causal: bool) -> dict[Rule, tuple[int, ...]]:
        """Return how one layer's heads descend their trees, and which heads share that.

        Args:
            num_heads: Heads that read by clusters; a table has one row, with an entry for each.
            causal: Whether tokens read none that comes after them.

        Returns:
            The heads of each rule, in rising order.

        Raises:
            ValueError: If a table has more rows, or does not fit the heads.
        """
        groups: dict[Rule, tuple[int, ...]] = {}
        for head in range(num_heads):
            rule = self.of_head(head, num_heads).rule(causal)
            groups[rule] = (*groups.get(rule, ()), head)
        return groups


Graph: TypeAlias = PairGraph | StoneGraph | ClusterGraph
GRAPHS: dict[str, type[Graph]] = {cls.kind: cls for cls in (PairGraph, StoneGraph, ClusterGraph)}
# Fields that version 0.2.0 had, with their defaults, which are the rule now.
GONE = {"min_weight": 0.0, "refine": 1, "clusters": None, "block": 64}
GONE_SINCE = "which version 0.2.0 of jat_graph had last"


def check_graph(name: str, value: Any) -> Graph:
    """Return the settings of a graph: they themselves, its kind, or what JSON says of it."""
    if isinstance(value, PairGraph | StoneGraph | ClusterGraph):
        return value
    settings = without_gone(value) if isinstance(value, Mapping) else {"kind": value}
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in GRAPHS:
        wanted = " or ".join(f"a {cls.__name__}" for cls in GRAPHS.values())
        raise ValueError(f"{name} must be {wanted}, or {' or '.join(GRAPHS)}, got {value!r}")
    return change_graph(GRAPHS[kind](), settings)


def without_gone(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return saved settings without those fields that are gone and had their defaults."""
    return {
        name: value for name, value in settings.items() if name not in GONE or value != GONE[name]
    }


def change_graph(graph: Graph, changes: Mapping[str, Any]) -> Graph:
    """Return a graph with other fields; ``vote_rate`` takes the place of a threshold."""
    for name in changes:
        if name not in graph.names():
            owners = [cls.kind for cls in GRAPHS.values() if name in cls.names()]
            if owners:
                raise ValueError(f"{name} needs graph={owners[0]!r}, got {graph.kind!r}")
            wanted = GONE_SINCE if name in GONE else f"wanted one of {graph.names()}"
            raise ValueError(f"unknown config field {name!r}, {wanted}")
    if changes.get("vote_rate") is not None and "threshold" not in changes:
        changes = {**changes, "threshold": PairGraph.threshold}
    return dataclasses.replace(graph, **changes)
