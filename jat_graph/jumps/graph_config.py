"""The settings of each kind of graph: a class with its own fields and checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from jat_graph.clusters.settings import ClusterGraph
from jat_graph.core.fields import (
    GraphSettings,
    Table,
    check_threshold,
    checked,
    flag,
    inside,
    integer,
    one_of,
)
from jat_graph.core.numbers import check_finite

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
            wanted = "None with key_step, which fixes the keys"
            raise ValueError(f"num_keys must be {wanted}, got {self.num_keys}")

    def thresholds(self, num_heads: int) -> tuple[float, ...]:
        """Return the threshold of each head: the number, or the row of a table that has one."""
        row = self.rows(num_heads).get("threshold")
        return (self.threshold,) * num_heads if row is None else row  # type: ignore[return-value]

    def of_head(self, head: int, num_heads: int) -> Any:
        """Return the settings of one head of a layer, whose table has one entry."""
        rows: Any = {name: ((row[head],),) for name, row in self.rows(num_heads).items()}
        return dataclasses.replace(self, **rows)


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
        nodes: ``"all"`` tokens are nodes, or the ``"selected"`` voting positions. (default: "all")
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
            wanted = "backend='dense' or 'auto'"
            raise ValueError(f"soft_temperature needs {wanted}, got {self.backend!r}")
        if self.max_neighbors is None:
            return
        if self.soft_temperature is not None:
            got = f"got soft_temperature={self.soft_temperature}"
            raise ValueError(f"max_neighbors needs hard votes, {got}")
        if self.backend not in ("auto", "sparse"):
            wanted = "'auto' or 'sparse' where edges are pruned"
            raise ValueError(f"backend must be {wanted}, got {self.backend!r}")


@dataclass(frozen=True)
class StoneGraph(ScoreGraph):
    r"""Tokens and their stepping stones: the keys that they score unusually high.

    Args:
        threshold: t, at least 0, in standard deviations of the scores of a sequence and head. A
            number, or a table ``[jump layer][jump head]``. (default: 1.0)
        key_selection, num_keys, key_factor, key_step: Which keys may be stones, as for the votes of
            :class:`PairGraph`.
        soft_temperature: τ of the incidence ``"sigmoid"``, above 0. (default: None, that is 0.5)
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
    # What is a choice with pairs alone.
    standardize = True
    vote_rate = None
    max_neighbors = None

    threshold: float | Table = checked(1.0, check_threshold)
    incidence: str = one_of("excess", "hard", "sigmoid")
    sides: str = one_of("both", "positive")
    self_weight: float = checked(0.1, lambda name, value: check_finite(name, value, least=0.0))
    backend: str = one_of("auto", "dense", "sparse")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend == "sparse" and self.incidence == "sigmoid":
            raise ValueError("incidence='sigmoid' needs backend='dense' or 'auto', got 'sparse'")
        if self.soft_temperature is not None and self.incidence != "sigmoid":
            wanted = "incidence='sigmoid' with stones"
            raise ValueError(f"soft_temperature needs {wanted}, got {self.incidence!r}")


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
