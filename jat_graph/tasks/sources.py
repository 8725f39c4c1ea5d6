"""Where the data of tasks lies: original files, plain or packed, or the Hub."""

from __future__ import annotations

import gzip
import json
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset


def find_file(folder: Path, task: str, homes: Sequence[str], names: Sequence[str]) -> Path:
    """Find a task's file in a folder, or in its home inside that folder."""
    if not folder.is_dir():
        raise FileNotFoundError(f"data folder {folder} does not exist or is not a folder")
    for home in (folder, *(folder / name for name in homes)):
        for name in names:
            if (home / name).exists():
                return home / name
    places = " or ".join(["it", *(f"its {home}" for home in homes)])
    raise FileNotFoundError(
        f"task {task} needs {' or '.join(names)} in {folder} ({places}): no such file"
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say which file it is when the ``with`` meets damage in one."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is cut off or damaged: {error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8, got a bad byte at {error.start}") from None


def read_bytes(path: Path) -> bytes:
    """Read a file."""
    with reading(path):
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def read_text(path: Path) -> str:
    """Read a file of UTF-8 text."""
    with reading(path):
        text = read_bytes(path).decode("utf-8-sig")
    if not text.strip():
        raise ValueError(f"{path} must hold text, got none")
    return text


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"{path} must be JSON, got {error.msg} at {place}") from None
    except RecursionError:
        raise ValueError(f"{path} must be JSON, got too many brackets inside one another") from None


def load_from_hub(
    task: str, path: str, *name: str, splits: Sequence[str], columns: Sequence[str]
) -> list[Dataset]:
    """Load splits of a data set from the Hub."""
    from datasets import load_dataset

    try:
        loaded = load_dataset(path, *name, split=list(splits))
    except (OSError, ValueError, RuntimeError) as error:  # the last for data that is a program
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"task {task} cannot be loaded from the Hub; give the folder with its "
            f"original files as data_dir (--data-dir). The Hub says: {reason}"
        ) from None
    return [dataset.select_columns(list(columns)) for dataset in loaded]


def needed_folder(task: str, data_dir: Path | None) -> Path:
    """Return the folder of a task that cannot be loaded by its name."""
    if data_dir is None:
        raise ValueError(
            f"task {task} cannot be loaded by name; give the folder with its original files as "
            "data_dir (--data-dir)"
        )
    return data_dir
