"""Checks of the config's fields, one kind of value each: the value in its one form, or ValueError.

Every message names the field, what was wanted and what came.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from jat_graph.checks.numbers import (
    check_choice,
    check_finite,
    check_flag,
    check_indices,
    check_inside,
    check_integer,
    check_number,
    is_integer,
)

if TYPE_CHECKING:
    from jat_graph.patterns.base import Pattern

HopWeights: TypeAlias = tuple[float, ...]
Strength: TypeAlias = float | str  # how strongly one hop changes queries, keys or values
Triple: TypeAlias = tuple[Strength, Strength, Strength]

LEARNED = "learned"
GIVEN = "given"  # a layer that no settings can build
GRAPHS = ("pairs", "stones")
INCIDENCES = ("excess", "hard", "sigmoid")
SIDES = ("both", "positive")

KEY_SELECTIONS = ("all", "significance", "sampled", "strided", "sampled_queries")
NODE_CHOICES = ("all", "selected")
BACKENDS = ("auto", "dense", "sparse", "threshold")


def check_field(name: str, value: Any) -> Any:
    """Return a field's value in its one form; None where the field may be None."""
    if value is None and name in _OPTIONAL:
        return None
    return _CHECKS[name](value)


def check_calibration(density: Any, graph: str, vote_rate: float | None) -> None:
    """Refuse what no thresholds can be measured for."""
    if not isinstance(density, int | float) or not 0 < density < 1:
        raise ValueError(f"density must be in (0, 1), got {density!r}")
    if graph != "pairs":
        raise ValueError(
            f"graph must be 'pairs' to calibrate, got {graph!r}; "
            "their threshold, in standard deviations, fits every head"
        )
    if vote_rate is not None:
        raise ValueError(f"vote_rate must be None to calibrate, got {vote_rate}")


def check_heads(value: Any) -> int | str | tuple[int, ...]:
    """Return a number of heads, ``"all"``, ``"even:n"``, or indices."""
    if is_integer(value):
        return check_integer("heads", value, least=1)
    if value == "all":
        return "all"
    if isinstance(value, str):
        number = value.removeprefix("even:")
        if number == value or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"heads must be a number, 'all', 'even:n' or indices, got {value!r}")
        return value
    return check_indices("heads", value)


def check_threshold(value: Any) -> float | tuple[tuple[float, ...], ...]:
    """Return ρ, or a table ``[jump layer][jump head]`` of it; JSON writes infinity as "inf"."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return check_number("threshold", math.inf if value == "inf" else value, least=0.0)
    if not value or any(isinstance(row, str) or not isinstance(row, Sequence) for row in value):
        raise ValueError(
            f"threshold must be a number or a table [jump layer][jump head], got {value!r}"
        )
    return tuple(
        tuple(
            check_number("threshold", math.inf if entry == "inf" else entry, least=0.0)
            for entry in row
        )
        for row in value
    )


def check_hops(value: Any) -> HopWeights | dict[tuple[int, ...], HopWeights]:
    """Return hop weights, or a mapping from heads to them; JSON writes a mapping as pairs."""
    if isinstance(value, list) and value and all(isinstance(pair, list) for pair in value):
        if any(len(pair) != 2 or not isinstance(pair[0], list) for pair in value):
            raise ValueError(
                f"hop_weights must be numbers or pairs [heads, weights], got {value!r}"
            )
        value = {tuple(heads): weights for heads, weights in value}
    if not isinstance(value, Mapping):
        return _check_hop_tuple(value)
    if not value:
        raise ValueError("hop_weights must name at least one group of heads, got {}")
    groups = {}
    for heads, weights in value.items():
        heads = (heads,) if is_integer(heads) else heads
        groups[check_indices("hop_weights heads", heads)] = _check_hop_tuple(weights)
    named = [head for heads in groups for head in heads]
    if len(set(named)) != len(named):
        raise ValueError(f"hop_weights must name each head once, got {sorted(named)}")
    return groups


def check_strength(value: Any) -> Strength | Triple | tuple[Triple, ...]:
    """Return one strength, three for queries, keys and values, or three for each hop."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return _check_one_strength(value)
    if value and all(isinstance(e, Sequence) and not isinstance(e, str) for e in value):
        return tuple(_check_triple(entry) for entry in value)
    return _check_triple(value)


def _check_triple(value: Any) -> Triple:
    if len(value) != 3:
        raise ValueError(
            f"strength must be three numbers, for queries, keys and values, got {value!r}"
        )
    query, key, values = (_check_one_strength(entry) for entry in value)
    return query, key, values


def _check_one_strength(value: Any) -> Strength:
    if isinstance(value, str) and value != LEARNED:
        raise ValueError(f"strength must be a number or {LEARNED!r}, got {value!r}")
    if isinstance(value, str):
        return value
    return check_inside("strength", value, -math.inf, math.inf)


def check_pattern(value: Any) -> str:
    """Return the spec of a pattern, or of what a spec says, in its one form."""
    from jat_graph.patterns.base import Pattern

    if isinstance(value, Pattern):
        return value.spec
    if not isinstance(value, str):
        raise ValueError(f"pattern must be a Pattern or its spec, got {value!r}")
    return read_pattern(value).spec


def read_pattern(spec: str) -> Pattern:
    """Return the pattern of a spec."""
    from jat_graph.patterns.parsing import parse_pattern

    return parse_pattern(spec)


def check_conv(value: Any) -> dict[str, Any] | str:
    """Return the name and the arguments of a layer; or that somebody must give it."""
    if value == GIVEN:
        return GIVEN
    value = {"layer": value} if isinstance(value, str) else value
    if not isinstance(value, Mapping) or not isinstance(value.get("layer"), str):
        raise ValueError(
            "conv must be the name of a layer of torch_geometric.nn or jat_graph.nn, or its name "
            f"and arguments, as {{'layer': 'APPNP', 'K': 10, 'alpha': 0.1}}, got {value!r}"
        )
    try:
        return dict(json.loads(json.dumps(dict(value), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"conv must have arguments that JSON knows, got {value!r}") from error


def check_version(version: Any, newest: int) -> None:
    """Refuse what a newer version of the library wrote."""
    if not is_integer(version) or version < 1:
        raise ValueError(f"config version must be a positive integer, got {version!r}")
    if version > newest:
        raise ValueError(
            f"config version must be at most {newest} for this jat_graph, "
            f"got {version}; install a newer jat_graph"
        )


def table_row(table: Sequence[Sequence[float]], row: int, num_heads: int) -> tuple[float, ...]:
    """Return a row of a table of thresholds, which must have an entry for each jump head."""
    if row >= len(table):
        raise ValueError(f"threshold needs a row for jump layer {row}, got {len(table)} rows")
    if len(table[row]) != num_heads:
        raise ValueError(
            f"threshold row {row} must have {num_heads} entries, one for each jump head, "
            f"got {len(table[row])}"
        )
    return tuple(table[row])


def hops_by_position(
    mapping: dict[tuple[int, ...], HopWeights], heads: tuple[int, ...]
) -> dict[tuple[int, ...], HopWeights]:
    """Return the mapping keyed by position in ``heads``, each of which it must name."""
    named = sorted(head for group in mapping for head in group)
    if named != sorted(heads):
        raise ValueError(
            f"hop_weights must name each jump head once, wanted {sorted(heads)}, got {named}"
        )
    return {tuple(heads.index(head) for head in group): w for group, w in mapping.items()}


def to_plain(value: Any) -> Any:
    """Return a value in JSON's types: tuples become lists, infinities the string "inf"."""
    if isinstance(value, dict):
        return {key: to_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    return "inf" if value == math.inf else value


def _check_hop_tuple(value: Any) -> HopWeights:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ValueError(f"hop_weights must be one or more numbers, got {value!r}")
    weights = tuple(check_inside("hop_weights", w, -math.inf, math.inf) for w in value)
    if not any(weights):
        raise ValueError(f"hop_weights must not be all zero, got {value!r}")
    return weights


def _check_tokens(value: Any) -> tuple[int, ...]:
    """Return token ids, which may be none."""
    return () if value in ((), []) else check_indices("silent_tokens", value)


_OPTIONAL = (
    "threshold",
    "layers",
    "vote_rate",
    "num_keys",
    "key_step",
    "soft_temperature",
    "pattern",
    "strength",
    "conv",
    "max_neighbors",
)

_CHECKS: dict[str, Callable[[Any], Any]] = {
    "threshold": check_threshold,
    "vote_rate": lambda value: check_inside("vote_rate", value, 0.0, 1.0),
    "hop_weights": check_hops,
    "heads": check_heads,
    "layers": lambda value: check_indices("layers", value),
    "key_selection": lambda value: check_choice("key_selection", value, KEY_SELECTIONS),
    "num_keys": lambda value: check_integer("num_keys", value, least=1),
    "key_factor": lambda value: check_inside("key_factor", value, 0.0, math.inf),
    "key_step": lambda value: check_integer("key_step", value, least=1),
    "same_sign_only": lambda value: check_flag("same_sign_only", value),
    "normalize_keys": lambda value: check_flag("normalize_keys", value),
    "inclusive": lambda value: check_flag("inclusive", value),
    "nodes": lambda value: check_choice("nodes", value, NODE_CHOICES),
    "soft_temperature": lambda value: check_inside("soft_temperature", value, 0.0, math.inf),
    "backend": lambda value: check_choice("backend", value, BACKENDS),
    "seed": lambda value: check_integer("seed", value, least=0),
    "pattern": check_pattern,
    "graph": lambda value: check_choice("graph", value, GRAPHS),
    "standardize": lambda value: check_flag("standardize", value),
    "incidence": lambda value: check_choice("incidence", value, INCIDENCES),
    "sides": lambda value: check_choice("sides", value, SIDES),
    "self_weight": lambda value: check_finite("self_weight", value, least=0.0),
    "strength": check_strength,
    "hops": lambda value: check_integer("hops", value, least=1),
    "silent_tokens": _check_tokens,
    "conv": check_conv,
    "min_weight": lambda value: check_finite("min_weight", value, least=0.0),
    "max_neighbors": lambda value: check_integer("max_neighbors", value, least=1),
}
