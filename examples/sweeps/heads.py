"""A variant's heads on a model at hand: layers and heads are scaled to its size."""

from __future__ import annotations

import re
from typing import Any

from examples.sweeps.definition import Variant
from jat_graph import JatConfig

RELEASED_LAYERS = "2,3,7,8,11/12"  # of the released code, named for models of twelve


def build_heads(
    variant: Variant, *, layers: int, heads: int, threshold: float | None = None
) -> list[JatConfig]:
    """Return the settings of a variant's heads on a model; none for a model as it is.

    A threshold takes the place of the variant's own. Layers and heads may be scaled, as the JAT
    paper's tables 4 and 5 name those of a model with 12 of each: see :func:`scale_layers`.
    """
    settings = dict(variant.settings)
    if isinstance(settings.get("layers"), str):
        settings["layers"] = scale_layers(settings["layers"], layers)
    if "/" in str(settings.get("heads", "")):
        settings["heads"] = scale_count("heads", settings["heads"], heads)
    if variant.heads in ("triplet", "gfsa", "ppr", "nexus"):
        raise ValueError(f"heads must not be {variant.heads!r} here: see docs/faithfulness.md")
    if variant.heads == "none":
        if settings or variant.tune or variant.density:
            raise ValueError(f"variant {variant.name!r} must have heads to have settings of them")
        return []
    if threshold is not None:
        settings["threshold"] = threshold
    if variant.heads in ("paper", "stones", "clustered"):
        return [getattr(JatConfig, variant.heads)(**settings)]
    if variant.heads == "efficient":
        return [JatConfig.paper(**{"key_selection": "significance", **settings})]
    settings.setdefault("layers", scale_layers(RELEASED_LAYERS, layers))
    return [JatConfig.released(efficient=variant.heads == "released-efficient", **settings)]


def scale_layers(spec: str, layers: int) -> tuple[int, ...]:
    """Return the layers, from 0, that ``"2,5-6/12"``, some of 12 counted from 1, become.

    Layers a to b of m become those from (a − 1)·L/m to b·L/m of L, rounded, so that neighbouring
    pieces share no layer. A piece that would be empty is the layer that holds its middle.
    """
    piece = r"\d+(?:-\d+)?"
    found = re.fullmatch(rf"({piece}(?:,{piece})*)/(\d+)", spec.replace(" ", ""))
    wanted = f"layers must be indices or pieces of a model, as '1-4/12', got {spec!r}"
    if found is None:
        raise ValueError(wanted)
    whole, chosen = int(found[2]), set[int]()
    for part in found[1].split(","):
        first, last = (ends := [int(end) for end in part.split("-")])[0], ends[-1]
        if not 1 <= first <= last <= whole:
            raise ValueError(wanted)
        begin, end = _rounded((first - 1) * layers, whole), _rounded(last * layers, whole)
        middle = (first - 1 + last) * layers // (2 * whole)
        chosen.update(range(begin, end) if begin < end else [middle])
    return tuple(sorted(chosen))


def scale_count(name: str, spec: Any, size: int) -> int:
    """Return the same share of another size, at least one."""
    found = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", str(spec))
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError(f"{name} must be a number or a share, as '2/12', got {spec!r}")
    return max(1, _rounded(int(found[1]) * size, int(found[2])))


def resolve_depth(spec: Any, layers: int) -> int:
    """Return the number of layers that ``"-3"``, ``"+2"``, ``"8/12"`` or a number asks for."""
    if not isinstance(spec, str):
        return int(spec)
    if "/" in spec:
        return scale_count("depth", spec, layers)
    if not re.fullmatch(r"[+-]\d+", spec) or layers + int(spec) < 1:
        wanted = f"'-3', '+2' or '8/12' that leaves a layer of {layers}"
        raise ValueError(f"depth must be a number, {wanted}, got {spec!r}")
    return layers + int(spec)


def _rounded(numerator: int, denominator: int) -> int:
    """Divide and round, a half upwards: Python rounds it to even, and pieces would overlap."""
    return (2 * numerator + denominator) // (2 * denominator)
