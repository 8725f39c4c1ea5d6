"""Options that commands share, and the settings and texts that they name."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import typer

from jat_graph.cli.option_texts import numbers, read_option
from jat_graph.training.options import TrainingOptions

if TYPE_CHECKING:
    from jat_graph.config import JatConfig
    from jat_graph.triplet_config import TripletConfig

PRESETS = ("paper", "released", "stones")


def parse_span(text: str) -> range:
    """Read ``40:90``, the positions from 40 to 89."""
    first, colon, end = text.partition(":")
    if not colon or not first.isdecimal() or not end.isdecimal() or int(first) >= int(end):
        raise typer.BadParameter(f"must be FIRST:END, as 40:90 for 40 to 89, got {text!r}")
    return range(int(first), int(end))


ModelOption: TypeAlias = Annotated[
    str, typer.Option("--model", help="Folder or Hub name of the model.")
]
ConfigOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help=f"Settings of jump heads: a JSON file, or {', '.join(PRESETS)}.",
    ),
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A field of the settings, as heads=all or 'layers=[0,2]'; repeat for several.",
    ),
]
TextOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--text", help="A text; repeat for several.")
]
FileOption: TypeAlias = Annotated[
    Path | None, typer.Option("--file", help="File with one text a line, in UTF-8.")
]
LayerOption: TypeAlias = Annotated[
    list[int] | None,
    typer.Option("--layer", min=0, help="A layer to show, from 0; repeat for several. [all]"),
]
HeadOption: TypeAlias = Annotated[
    list[int] | None,
    typer.Option("--head", min=0, help="A head to show, from 0; repeat for several. [all]"),
]
TokensOption: TypeAlias = Annotated[
    range | None,
    typer.Option(
        "--tokens",
        metavar="FIRST:END",
        parser=parse_span,
        help="Tokens to show: 40:90 are those from 40 to 89.",
    ),
]
SpecialOption: TypeAlias = Annotated[
    bool, typer.Option("--special-tokens", help="Show special tokens, too.")
]


def read_settings(
    config: str | None, changes: list[str] | None, default: JatConfig | None = None
) -> JatConfig | None:
    """Return the settings that ``--config`` and ``--set`` describe, else ``default``.

    What is set changes the settings of ``--config``, without it ``default``, else the paper's.
    """
    from jat_graph.config import JatConfig

    if config in PRESETS:
        default = getattr(JatConfig, config)()
    elif config is not None:
        default = JatConfig.load(config)
    return (default or JatConfig()).replace(**parse_changes(changes)) if changes else default


def parse_changes(changes: list[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE``: values as JSON, where they are, else as text."""
    found: dict[str, Any] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"--set must be NAME=VALUE, as heads=all, got {change!r}")
        try:
            found[name] = _as_tuples(json.loads(value))
        except json.JSONDecodeError:
            found[name] = value
    return found


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def read_texts(text: list[str] | None, file: Path | None, needed: bool = True) -> list[str]:
    """Return the texts of ``--text`` and ``--file``."""
    try:
        lines = [] if file is None else file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} must be UTF-8, got a bad byte at {error.start}") from None
    texts = [stripped for line in (*(text or ()), *lines) if (stripped := line.strip())]
    if needed and not texts:
        given = "an empty file" if file is not None else "an empty --text" if text else "none"
        raise ValueError(f"text must be given by --text, or by --file a line each, got {given}")
    return texts


# What follows is of commands that leave.
_PRESETS = ("paper", "released", "released-efficient", "stones")
PANEL = "Jump attention"
TRIPLET_PANEL = "Triplet attention"
TRAINING_PANEL = "Training"


def gather(**groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that dataclasses list, each in the argument of its name.

    Reference:
        typer reads ``__signature__``; that is how one list serves several commands.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            for argument, group in groups.items():
                given[argument] = group(**{f.name: given.pop(f.name) for f in fields(group)})
            command(**given)

        own = inspect.signature(command, eval_str=True)
        kept = [p for p in own.parameters.values() if p.name not in groups]
        added = [parameter for group in groups.values() for parameter in _parameters(group)]
        merged = sorted([*kept, *added], key=lambda p: p.default is not p.empty)
        keyword = inspect.Parameter.KEYWORD_ONLY
        signature = own.replace(parameters=[p.replace(kind=keyword) for p in merged])
        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _parameters(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    signature = inspect.signature(group)
    return [
        parameter.replace(annotation=hints[name])
        for name, parameter in signature.parameters.items()
    ]


def _option(help_text: str, *names: str, panel: str | None = PANEL) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=panel)


@dataclass(frozen=True)
class JatOptions:
    """What the user said about jump attention: where to start, and fields of ``JatConfig``."""

    config: Annotated[Path | None, _option("JSON file with the settings to start from.")] = None
    preset: Annotated[str | None, _option(f"Settings to start from: {', '.join(_PRESETS)}.")] = None
    graph: Annotated[str | None, _option("What a jump goes along: pairs of tokens, or stones.")] = (
        None
    )
    threshold: Annotated[
        float | None,
        _option("ρ: a key votes where the product is above. With stones t, in deviations."),
    ] = None
    vote_rate: Annotated[
        float | None, _option("Choose ρ per sentence and head so that this share votes.")
    ] = None
    hop_weights: Annotated[
        str | None, _option("Weight of each hop: 0,1 (paper) or 0.5,0.5 (released code).")
    ] = None
    heads: Annotated[
        str | None,
        _option("4 (the first four), all, even:2 (0 and 2), or indices 0,3 ('3,' is one)."),
    ] = None
    layers: Annotated[str | None, _option("Indices from 0, as 0,2,5; or all.")] = None
    key_selection: Annotated[
        str | None,
        _option("Which keys vote: all, significance, sampled, strided or sampled_queries."),
    ] = None
    num_keys: Annotated[int | None, _option("Number of voting keys.")] = None
    key_factor: Annotated[float | None, _option("c, where c·ln(n) keys vote.")] = None
    key_step: Annotated[int | None, _option("Step of strided keys; causal models need it.")] = None
    same_sign_only: Annotated[
        bool | None,
        _option("Two negative scores do not vote.", "--same-sign-only/--any-sign"),
    ] = None
    normalize_keys: Annotated[
        bool | None,
        _option("Divide products by the key's length.", "--normalize-keys/--raw-keys"),
    ] = None
    inclusive: Annotated[
        bool | None, _option("A product equal to ρ votes.", "--inclusive/--exclusive")
    ] = None
    pattern: Annotated[
        str | None,
        _option(
            "Where scores are read, as window:256+global:1 (docs: Patterns); none takes it off."
        ),
    ] = None
    nodes: Annotated[str | None, _option("Tokens of the graph: all or selected.")] = None
    soft_temperature: Annotated[
        float | None, _option("τ of the differentiable vote, or of sigmoid stones.")
    ] = None
    standardize: Annotated[
        bool | None,
        _option("Vote by standard scores; stones always do.", "--standardize/--raw-scores"),
    ] = None
    incidence: Annotated[
        str | None, _option("How tokens stand on stones: excess, hard or sigmoid.")
    ] = None
    sides: Annotated[
        str | None, _option("Stones of unusually low scores, too: both; or positive.")
    ] = None
    self_weight: Annotated[
        float | None, _option("ε, the weight with which a token stays where it is.")
    ] = None
    strength: Annotated[
        str | None,
        _option("How far to jump: learned, a number, or three (queries, keys, values) for a hop."),
    ] = None
    hops: Annotated[int | None, _option("Number of hops, with a strength each.")] = None
    excluded_token_ids: Annotated[
        str | None,
        _option("Ids that are never stones. Default: the tokenizer's, with stones."),
    ] = None
    min_weight: Annotated[float | None, _option("Drop edges of less weight.")] = None
    max_neighbors: Annotated[
        int | None, _option("Keep the heaviest edges into each token, and their reverse.")
    ] = None
    conv: Annotated[
        str | None,
        _option(
            'A layer of PyG in the heads: GCNConv, or {"layer": "APPNP", "K": 10, "alpha": 0.1}.'
        ),
    ] = None
    backend: Annotated[str | None, _option("auto, dense, sparse or threshold.")] = None
    key_seed: Annotated[int | None, _option("Seed of sampled keys and queries.")] = None

    def resolve(self, default: JatConfig | None = None) -> JatConfig | None:
        """The config that the options describe: a file, a preset or ``default``, changed."""
        from jat_graph.config import JatConfig

        changes = self._changes()
        base = self._base()
        if base is None and (default is not None or not changes):
            base = default
        elif base is None:
            base = JatConfig()
        return _changed(base, changes) if base is not None and changes else base

    def _base(self) -> JatConfig | None:
        from jat_graph.config import JatConfig

        if self.config is not None and self.preset is not None:
            raise ValueError("--config and --preset exclude each other: name one of them")
        if self.config is not None:
            return JatConfig.load(self.config)
        if self.preset is None:
            return None
        if self.preset not in _PRESETS:
            raise ValueError(f"--preset must be one of {', '.join(_PRESETS)}, got {self.preset!r}")
        if self.preset == "paper":
            return JatConfig.paper()
        if self.preset == "stones":
            return JatConfig.stones()
        return JatConfig.released(efficient=self.preset == "released-efficient")

    def _changes(self) -> dict[str, Any]:
        given = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("config", "preset") and getattr(self, field.name) is not None
        }
        changes = {name: read_option(name, value) for name, value in given.items()}
        if "key_seed" in changes:
            changes["seed"] = changes.pop("key_seed")
        return changes


def _changed(config: JatConfig, changes: Mapping[str, Any]) -> JatConfig:
    """The config with some fields changed; another graph brings its own defaults, such as t."""
    return config.replace(**changes)


@dataclass(frozen=True)
class TripletOptions:
    """What the user said about the fields ``pairs``, ``heads`` and ``layers`` of triplet heads."""

    triplet: Annotated[
        str | None,
        _option(
            "Triplet heads (A³): partner, sum or max; alone, without an option of jump heads.",
            panel=TRIPLET_PANEL,
        ),
    ] = None
    triplet_heads: Annotated[
        int | None,
        _option("How many, the last ones; a multiple of 3. Default: 3.", panel=TRIPLET_PANEL),
    ] = None
    triplet_layers: Annotated[
        str | None, _option("Indices from 0, as 0,2,5; or all.", panel=TRIPLET_PANEL)
    ] = None

    def resolve(self) -> TripletConfig | None:
        """The settings that the options describe; None without ``--triplet``."""
        if self.triplet is None:
            if self != TripletOptions():
                raise ValueError("--triplet-heads and --triplet-layers need --triplet")
            return None
        from jat_graph.triplet_config import TripletConfig

        given: dict[str, Any] = {}
        if self.triplet_heads is not None:
            given["heads"] = self.triplet_heads
        if self.triplet_layers not in (None, "all"):
            given["layers"] = numbers("triplet-layers", str(self.triplet_layers), int)
        return TripletConfig(pairs=self.triplet, **given)


_TYPES: dict[str, Any] = get_type_hints(TrainingOptions) | {"trainer": list[str] | None}
# Those with a text of help; the command has its own words for the others.
_LISTED = {entry.name: entry for entry in fields(TrainingOptions) if "help" in entry.metadata}


def _fields(title: str, names: Iterable[str], panel: str | None, **flags: str) -> type:
    """Fields of TrainingOptions as options of a command, some of them with a flag of its own."""
    listed = []
    for name in names:
        entry, own = _LISTED[name], [flags[name]] if name in flags else []
        option = _option(entry.metadata["help"], *own, panel=panel)
        default = None if entry.default is MISSING else entry.default
        listed.append((name, Annotated[_TYPES[name], option], default))
    return make_dataclass(title, listed)


RunOptions = _fields("RunOptions", _LISTED, TRAINING_PANEL)
_LENGTH = "Tokens of a text, pair, block or window. Default: those of the training, else 128."
EvalOptions = make_dataclass(
    "EvalOptions",
    [("max_length", Annotated[int | None, _option(_LENGTH, panel=None)], None)],
    bases=(
        _fields(
            "EvalFields",
            ("eval_batch_size", "stride", "max_eval_samples", "mixed_precision", "device"),
            panel=None,
            eval_batch_size="--batch-size",
        ),
    ),
)
