"""What pages of results have in common: each is made from the files of a folder, and no others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

NO_RESULTS = "\nNo results are here yet.\n"


def result_files(folder: Path, ending: str) -> list[Path]:
    """The files of a folder of results, by name."""
    if not folder.is_dir():
        raise ValueError(f"the page needs a folder of results, got {folder}")
    return sorted(folder.glob(f"*{ending}"))


def section(title: str, *parts: str) -> str:
    """A part of a page, with its own parts a blank line apart."""
    return "".join(f"\n{part}\n" for part in (f"## {title}", *parts))


def picture(text: str, path: str) -> str:
    """A picture in Markdown, and what it shows."""
    return f"![{text}]({path})"


def page(heading: str, sections: Sequence[str]) -> str:
    """A whole page, which says so where there is no section yet."""
    return heading + ("".join(sections) or NO_RESULTS)


def run_command(write_page: Callable[[str], Path], folder: str) -> None:
    """Write the page of the folder on the command line, else of this one; errors are one line."""
    try:
        write_page(sys.argv[1] if len(sys.argv) == 2 else folder)
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
