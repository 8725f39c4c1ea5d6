"""Checks of the settings of jumps alone: heads, hop weights, strengths, patterns and layers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from jat_graph.core.numbers import check_indices, check_inside, check_integer, is_integer

HopWeights: TypeAlias = tuple[float, ...]
HopGroups: TypeAlias = dict[tuple[int, ...], HopWeights]  # by the heads that share them
Strength: TypeAlias = float | str  # how strongly one hop changes queries, keys or values
Triple: TypeAlias = tuple[Strength, Strength, Strength]

LEARNED = "learned"
EXTERNAL = "given"  # a layer that no settings can build
OWN_LAYERS = ("JumpConv", "StoneConv")  # of jat_graph.nn


def check_heads(name: str, value: Any) -> int | str | tuple[int, ...]:
    """Return a number of heads, ``"all"``, ``"even:n"``, or indices."""
    if is_integer(value):
        return check_integer(name, value, least=1)
    if value == "all":
        return "all"
    if isinstance(value, str):
        count = value.removeprefix("even:")
        if count == value or not count.isdecimal() or int(count) < 1:
            raise ValueError(f"{name} must be a number, 'all', 'even:n' or indices, got {value!r}")
        return value
    return check_indices(name, value)


def check_hop_weights(name: str, value: Any) -> HopWeights | HopGroups:
    """Return hop weights, or a mapping from heads to them; JSON writes a mapping as pairs."""
    if isinstance(value, list) and value and all(isinstance(pair, list) for pair in value):
        if any(len(pair) != 2 or not isinstance(pair[0], list) for pair in value):
            raise ValueError(f"{name} must be numbers or pairs [heads, weights], got {value!r}")
        value = {tuple(heads): weights for heads, weights in value}
    if not isinstance(value, Mapping):
        return _check_weights(name, value)
    if not value:
        raise ValueError(f"{name} must name at least one group of heads, got {{}}")
    groups = {}
    for heads, weights in value.items():
        heads = (heads,) if is_integer(heads) else heads
        groups[check_indices(f"{name} heads", heads)] = _check_weights(name, weights)
    named = [head for heads in groups for head in heads]
    if len(set(named)) != len(named):
        raise ValueError(f"{name} must name each head once, got {value!r}")
    return groups


def _check_weights(name: str, value: Any) -> HopWeights:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise ValueError(f"{name} must be one or more numbers, got {value!r}")
    weights = tuple(check_inside(name, w, -math.inf, math.inf) for w in value)
    if not any(weights):
        raise ValueError(f"{name} must not be all zero, got {value!r}")
    return weights


def check_strength(name: str, value: Any) -> Strength | Triple | tuple[Triple, ...]:
    """Return a strength, three for queries, keys and values, or three for each hop."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return _check_one_strength(name, value)
    if value and all(isinstance(e, Sequence) and not isinstance(e, str) for e in value):
        return tuple(_check_triple(name, entry) for entry in value)
    return _check_triple(name, value)


def _check_triple(name: str, value: Any) -> Triple:
    if len(value) != 3:
        wanted = "three numbers, for queries, keys and values"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    query, key, values = (_check_one_strength(name, entry) for entry in value)
    return query, key, values


def _check_one_strength(name: str, value: Any) -> Strength:
    if isinstance(value, str) and value != LEARNED:
        raise ValueError(f"{name} must be a number or {LEARNED!r}, got {value!r}")
    return value if isinstance(value, str) else check_inside(name, value, -math.inf, math.inf)


def check_pattern(name: str, value: Any) -> str:
    """Return the spec of a pattern, or of what a spec says, in its one form."""
    from jat_graph.jumps.patterns import Pattern, parse_pattern

    if not isinstance(value, Pattern | str):
        raise ValueError(f"{name} must be a Pattern or its spec, got {value!r}")
    return (parse_pattern(value) if isinstance(value, str) else value).spec


def check_conv(name: str, value: Any) -> dict[str, Any] | str:
    """Return the name and the arguments of a layer; or that somebody must give it."""
    if value == EXTERNAL:
        return EXTERNAL
    value = {"layer": value} if isinstance(value, str) else value
    if not isinstance(value, Mapping) or not isinstance(value.get("layer"), str):
        raise ValueError(
            f"{name} must be the name of a layer of torch_geometric.nn or jat_graph.nn, or its "
            f"name and arguments, as {{'layer': 'APPNP', 'K': 10, 'alpha': 0.1}}, got {value!r}"
        )
    if value["layer"] not in OWN_LAYERS and layer_of_pyg(value["layer"]) is None:
        what = "a layer of torch_geometric.nn or jat_graph.nn"
        raise ValueError(f"{name} must name {what}, got {value['layer']!r}")
    try:
        return dict(json.loads(json.dumps(dict(value), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must have arguments that JSON knows, got {value!r}") from error


def layer_of_pyg(name: str) -> Any:
    """Return a message-passing layer of PyG; None for any other name."""
    from torch_geometric.nn import conv  # takes seconds to load

    found = getattr(conv, name, None)
    return found if isinstance(found, type) and issubclass(found, conv.MessagePassing) else None


def hops_by_index(groups: HopGroups, heads: tuple[int, ...]) -> HopGroups:
    """Return the mapping keyed by index into ``heads``, each of which it must name."""
    named = sorted(head for group in groups for head in group)
    if named != sorted(heads):
        wanted = f"each jump head once, wanted {sorted(heads)}"
        raise ValueError(f"hop_weights must name {wanted}, got {named}")
    return {tuple(heads.index(head) for head in group): w for group, w in groups.items()}
