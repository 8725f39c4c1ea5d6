"""Options that commands share, and the settings and texts that they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from jat_graph.config import JatConfig

PRESETS = ("paper", "released", "stones")


def parse_span(text: str) -> range:
    """Read ``40:90``, the positions from 40 to 89."""
    first, colon, end = text.partition(":")
    if not colon or not first.isdecimal() or not end.isdecimal() or int(first) >= int(end):
        raise typer.BadParameter(f"must be FIRST:END, as 40:90 for 40 to 89, got {text!r}")
    return range(int(first), int(end))


ModelOption: TypeAlias = Annotated[str, typer.Option("--model", help="Folder or Hub name.")]
ConfigOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help=f"Settings, as JSON; or {', '.join(PRESETS)}."),
]
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A setting: heads=all, 'layers=[0,2]'; repeatable."
    ),
]
TextOption: TypeAlias = Annotated[
    list[str] | None, typer.Option("--text", help="A text; repeatable.")
]
FileOption: TypeAlias = Annotated[
    Path | None, typer.Option("--file", help="File with one text a line, in UTF-8.")
]
LayerOption: TypeAlias = Annotated[
    list[int] | None, typer.Option("--layer", min=0, help="Layer to show, from 0; repeatable.")
]
HeadOption: TypeAlias = Annotated[
    list[int] | None, typer.Option("--head", min=0, help="Head to show, from 0; repeatable.")
]
TokensOption: TypeAlias = Annotated[
    range | None,
    typer.Option(
        "--tokens", metavar="FIRST:END", parser=parse_span, help="Show these: 40:90 is 40 to 89."
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
    return (default or JatConfig()).replace(**read_values("--set", changes)) if changes else default


def read_values(option: str, values: list[str] | None) -> dict[str, Any]:
    """Read ``NAME=VALUE``, any number of them: values as JSON, where they are, else as text."""

    def with_tuples(value: Any) -> Any:
        return tuple(map(with_tuples, value)) if isinstance(value, list) else value

    found: dict[str, Any] = {}
    for given in values or ():
        name, equals, value = given.partition("=")
        if not equals:
            raise ValueError(f"{option} must be NAME=VALUE, as heads=all, got {given!r}")
        try:
            found[name] = with_tuples(json.loads(value))
        except json.JSONDecodeError:
            found[name] = value
    return found


def read_texts(text: list[str] | None, file: Path | None, needed: bool = True) -> list[str]:
    """Return the texts of ``--text`` and ``--file``."""
    try:
        lines = [] if file is None else file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} must be UTF-8, got a bad byte at {error.start}") from None
    texts = [stripped for line in (*(text or ()), *lines) if (stripped := line.strip())]
    if needed and not texts:
        given = "none" if file is None and not text else "empty ones"
        raise ValueError(f"text must be given by --text, or by --file a line each, got {given}")
    return texts
