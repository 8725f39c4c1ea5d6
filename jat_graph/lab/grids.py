"""The grids that come with the library; naming them costs no import of what runs them."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "studies" / "grids"


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
