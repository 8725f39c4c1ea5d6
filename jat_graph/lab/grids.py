"""The grids that come with the library; naming them costs no import of what runs them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "studies" / "grids"

# Kinds of grids whose cells start from a model that is named, and of those whose cells make theirs.
ON_A_MODEL = ("train", "connections", "stepping-stones")
OWN_MODELS = ("far-recall", "partners", "scratch")


def grid_names() -> tuple[str, ...]:
    """Return the names of the grids that come with the library."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def grid_path(name: str) -> Path:
    """Return where the file of a grid is."""
    if name.endswith(".toml"):
        return Path(name)
    if name not in grid_names():
        known = ", ".join(grid_names())
        raise ValueError(f"experiment must be one of {known} or a file FILE.toml, got {name!r}")
    return FOLDER / f"{name}.toml"


def read_toml(path: Path) -> dict[str, Any]:
    """Return what the file of a grid says."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # TOML's own, or not UTF-8
        raise ValueError(f"grid {path} must be TOML: {str(error).splitlines()[0]}") from None


def needs_model(path: Path) -> bool:
    """Whether an experiment must be given a model."""
    return read_toml(path).get("kind", "train") in ON_A_MODEL


def makes_models(path: Path) -> bool:
    """Whether an experiment takes no model, as its cells make theirs."""
    return read_toml(path).get("kind") in OWN_MODELS
