"""The grids that come with the library; naming them costs no import of what runs them."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "studies" / "grids"


def grid_names() -> tuple[str, ...]:
    """Return the names of the grids that come with the library."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
