"""An arm of a grid, and its heads on a model at hand: layers and heads scaled to its size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any, Literal

from jat_graph.config import JatConfig
from jat_graph.filter_config import RULES, FilterConfig
from jat_graph.lab.parsing import STRICT, check_finite, check_keys
from jat_graph.training.heads import BothHeads, Heads, join_kinds, kinds_of
from jat_graph.training.options import TrainingOptions
from jat_graph.triplet_config import TripletConfig

HeadKind = Literal[
    "none",
    "paper",
    "released",
    "released-efficient",
    "efficient",
    "stones",
    "triplet",
    "gfsa",
    "ppr",
    "nexus",
]

# Settings are checked on a model of this size before any model is loaded.
_LAYERS = _HEADS = 12
_MANY = 10**6

_NEXUS = "they project queries and keys again, which an attention function cannot do"

# What RoBERTa-base and BERT-base have; the released code's layers are named for it.
_RELEASED_LAYERS = "2,3,7,8,11/12"

# What the command says, the grid's seeds and tuning say, or one process does not do.
_NOT_A_GRIDS = (
    *("model", "task", "output_dir", "data_dir", "seed", "resume", "device", "held_out"),
    "fully_sharded",
)


@dataclass(frozen=True)
class GridArm:
    """One line of a table: what kind of heads a model has, and how it is trained.

    Args:
        name: What the line is called.
        heads: ``"none"``; ``"paper"``, ``"released"`` and ``"released-efficient"``, the presets of
            :class:`jat_graph.JatConfig`, and so ``"stones"``; ``"efficient"``, the paper's with
            its JAT† (Eq. 8); ``"triplet"``; ``"gfsa"`` or ``"ppr"``, filter heads; or
            ``"nexus"``, which small models from scratch alone can have. (default: "none")
        settings: Fields of :class:`jat_graph.JatConfig`, :class:`jat_graph.hf.TripletConfig` or
            :class:`jat_graph.hf.FilterConfig`; layers and heads may be scaled to the model.
            (default: nothing)
        options: Fields of :class:`jat_graph.training.TrainingOptions` in place of the grid's;
            ``depth`` may be relative, as ``"-3"``. (default: nothing)
        tune: Choose ρ for each task on held-out training data; or the name of the arm whose choice
            is taken over. (default: False)
        density: Calibrate thresholds to this density. (default: None)
        line: Plots join the arms that share this name. (default: None)
        x: Where plots put the arm. (default: None)
        triplets: Fields of :class:`jat_graph.hf.TripletConfig`, for triplet heads beside the jump
            heads, scaled likewise. (default: None, no such heads)
    """

    __pydantic_config__ = STRICT

    name: str
    heads: HeadKind = "none"
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    tune: bool | str = False
    density: float | None = None
    line: str | None = None
    x: float | None = None
    triplets: Mapping[str, Any] | None = None


def build_heads(
    arm: GridArm, *, layers: int, heads: int, threshold: float | None = None
) -> Heads | None:
    """Return the settings of an arm's heads on a model.

    Layers may be scaled: ``"1-4/12"`` are those that layers 1 to 4 of 12 become, counted from 1,
    at least one; ``"2,5-6/12"`` puts pieces together. So may heads: ``"2/12"`` is a sixth of the
    model's, at least one; of triplet heads a multiple of 3.

    Reference:
        The JAT paper's tables 4 and 5 name layers and heads of a model with 12 of each.
    """
    if arm.heads == "none":
        return None
    if arm.heads == "nexus":
        raise ValueError(f"heads must not be 'nexus' here: {_NEXUS}")
    if arm.heads == "triplet":
        return _triplets(arm.settings, layers, heads)
    if arm.heads in RULES:
        return FilterConfig.from_dict({"rule": arm.heads, **_scaled(arm.settings, layers, heads)})
    settings = dict(arm.settings)
    if arm.heads.startswith("released"):
        settings.setdefault("layers", _RELEASED_LAYERS)
    config = _preset(arm.heads, _scaled(settings, layers, heads))
    if threshold is not None:
        config = config.replace(threshold=threshold)
    beside = None if arm.triplets is None else _triplets(arm.triplets, layers, heads)
    return join_kinds(config, beside)


def arm_of(name: str, heads: Heads | None, options: Mapping[str, Any]) -> GridArm:
    """Return the arm that has these heads, on a model of the size at hand."""
    if heads is None:
        return GridArm(name, options=options)
    if isinstance(heads, BothHeads):
        jump, triplet = heads.jump.to_dict(), heads.triplet.to_dict()
        return GridArm(name, "paper", jump, options, triplets=triplet)
    settings = heads.to_dict()
    if isinstance(heads, FilterConfig):
        return GridArm(name, settings.pop("rule"), settings, options)
    return GridArm(name, "paper" if isinstance(heads, JatConfig) else "triplet", settings, options)


def scale_layers(spec: str, layers: int) -> tuple[int, ...]:
    """Return the layers that some layers of a deeper or shallower model become.

    Layers a to b of m cover the depths from (a − 1)/m to b/m; of L layers they become those from
    (a − 1)·L/m to b·L/m, rounded, so that neighbouring pieces share no layer. A piece that would be
    empty is the layer that holds its middle, which a neighbour may have, too.
    """
    found = re.fullmatch(r"\s*(\d+(?:\s*-\s*\d+)?(?:\s*,\s*\d+(?:\s*-\s*\d+)?)*)\s*/\s*(\d+)", spec)
    wanted = f"layers must be indices or pieces of a model, as '1-4/12', got {spec!r}"
    if found is None:
        raise ValueError(wanted)
    whole = int(found[2])
    chosen: set[int] = set()
    for piece in found[1].split(","):
        ends = [int(end) for end in piece.split("-")]
        first, last = ends[0], ends[-1]
        if not 1 <= first <= last <= whole:
            raise ValueError(wanted)
        begin = _rounded((first - 1) * layers, whole)
        end = _rounded(last * layers, whole)
        middle = (first - 1 + last) * layers // (2 * whole)
        chosen.update(range(begin, end) if begin < end else [middle])
    return tuple(sorted(chosen))


def scale_count(name: str, spec: Any, size: int) -> int:
    """Return the same share of another size, at least one."""
    found = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", str(spec))
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ValueError(f"{name} must be a number or a share, as '2/12', got {spec!r}")
    return max(1, _rounded(int(found[1]) * size, int(found[2])))


def resolve_depth(spec: int | str | None, layers: int) -> int | None:
    """Return the number of layers that a run's model has."""
    if not isinstance(spec, str):
        return spec
    if "/" in spec:
        return scale_count("depth", spec, layers)
    if not re.fullmatch(r"[+-]\d+", spec):
        raise ValueError(f"depth must be a number, '-3', '+2' or '8/12', got {spec!r}")
    if layers + int(spec) < 1:
        raise ValueError(f"depth must leave a layer of the model's {layers}, got {spec!r}")
    return layers + int(spec)


def check_size(heads: Heads | None, layers: int, count: int) -> None:
    """Refuse heads that no model of some size can have, before it is loaded."""
    kinds = [config for config in kinds_of(heads) if config is not None]
    places = [
        set(product(config.layer_indices(layers), config.head_indices(count))) for config in kinds
    ]
    if len(places) == 2 and (shared := places[0] & places[1]):
        layer, head = min(shared)
        raise ValueError(f"head {head} of layer {layer} must be a jump or a triplet head, got both")


def check_arm(arm: GridArm, where: str) -> None:
    """Refuse an arm that no model could have."""
    check_options(arm.options, f"{where}, options")
    check_finite({"settings": arm.settings, "options": arm.options}, where)
    if why := _misfit(arm):
        raise ValueError(f"{where}: {why}")
    try:
        resolve_depth(arm.options.get("depth"), _MANY)
        if arm.heads == "nexus":  # which some kinds of grids refuse
            return
        heads = build_heads(arm, layers=_LAYERS, heads=_HEADS)
        jump, triplet = kinds_of(heads)
        if jump and triplet and jump.pattern is not None:
            raise ValueError("pattern must be left out beside triplet heads, which read everywhere")
        if arm.density is not None and jump and jump.graph.kind == "stones":
            raise ValueError("density must be left out with stones, whose threshold fits all heads")
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def check_only_heads(arm: GridArm, where: str) -> None:
    """Refuse what sets an arm apart from the others beside its heads."""
    asked = [name for name in ("options", "tune", "density") if getattr(arm, name)]
    if asked:
        raise ValueError(f"{where} must have no {asked[0]}: arms differ in their heads alone")


def check_options(options: Mapping[str, Any], where: str) -> None:
    """Refuse what is not an option of a grid's runs, or has a value that cannot be."""
    known = [entry.name for entry in fields(TrainingOptions) if entry.name not in _NOT_A_GRIDS]
    check_keys(options, known, where)
    plain = {k: v for k, v in options.items() if not (k == "depth" and isinstance(v, str))}
    try:
        TrainingOptions(model="model", task="task", output_dir="output", **plain)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _misfit(arm: GridArm) -> str | None:
    """What in an arm excludes something else."""
    measured = [name for name in ("tune", "density") if getattr(arm, name) not in (False, None)]
    if arm.line is not None and not arm.line.strip():
        return f"line must be a text, got {arm.line!r}"
    if "max_eval_samples" in arm.options:
        return "max_eval_samples belongs to [training]: all arms are scored on the same examples"
    if arm.heads in ("none", "nexus") and (arm.settings or measured):
        return f"heads = {arm.heads!r} takes no {'settings' if arm.settings else measured[0]}"
    if arm.triplets is not None and arm.heads in ("none", "triplet", "nexus", *RULES):
        return f"heads = {arm.heads!r} takes no triplets, which stand beside jump heads"
    if arm.heads in ("triplet", *RULES) and measured:
        return f"{arm.heads} heads have no threshold, so they take no {measured[0]}"
    if len(measured) == 2:
        return "tune and density exclude each other"
    fixed = [name for name in ("threshold", "vote_rate") if name in arm.settings]
    if measured and fixed:
        return f"{measured[0]} and settings.{fixed[0]} exclude each other"
    if arm.density is not None and not 0 < arm.density < 1:
        return f"density must be between 0 and 1, got {arm.density}"
    return None


def _scaled(settings: Mapping[str, Any], layers: int, heads: int) -> dict[str, Any]:
    """Return settings with layers and heads of a model at hand."""
    scaled = dict(settings)
    if isinstance(scaled.get("layers"), str):
        scaled["layers"] = scale_layers(scaled["layers"], layers)
    if "/" in str(scaled.get("heads", "")):
        scaled["heads"] = scale_count("heads", scaled["heads"], heads)
    return scaled


def _triplets(settings: Mapping[str, Any], layers: int, heads: int) -> TripletConfig:
    scaled = _scaled(settings, layers, heads)
    if scaled.get("heads") != settings.get("heads"):
        scaled["heads"] = _in_threes(scaled["heads"], heads)
    return TripletConfig.from_dict(scaled)


def _preset(name: str, settings: Mapping[str, Any]) -> JatConfig:
    known = JatConfig.field_names()
    for key in settings:
        if key not in known:
            raise ValueError(f"unknown config field {key!r}, wanted one of {sorted(known)}")
    if name == "efficient":
        return JatConfig.paper(**{"key_selection": "significance", **settings})
    if name == "paper":
        return JatConfig.paper(**settings)
    if name == "stones":
        return JatConfig.stones(**settings)
    return JatConfig.released(efficient=name == "released-efficient", **settings)


def _in_threes(count: int, most: int) -> int:
    """Return the nearest multiple of 3 that a layer has room for, at least 3."""
    return max(3, min(3 * round(count / 3), 3 * (most // 3)))


def _rounded(numerator: int, denominator: int) -> int:
    """Divide and round, a half upwards: Python rounds it to even, and pieces would overlap."""
    return (2 * numerator + denominator) // (2 * denominator)
