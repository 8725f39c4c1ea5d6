"""Where the data of tasks lies: original files, plain or packed, or the Hub.

And splits of data that have none: drawn from a seed, with every class in its share.
"""

from __future__ import annotations

import gzip
import json
import random
import tarfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.files import check_data_folder

if TYPE_CHECKING:
    from datasets import Dataset


def find_file(folder: Path | None, task: str, homes: Sequence[str], names: Sequence[str]) -> Path:
    """A task's file in a folder, or in its home inside that folder."""
    if folder is None:
        raise ValueError(
            f"task {task} cannot be loaded by name; give the folder with its original files as "
            "data_dir (--data-dir)"
        )
    check_data_folder(folder)
    for home in (folder, *(folder / name for name in homes)):
        for name in names:
            if (home / name).exists():
                return home / name
    places = " or ".join(["it", *(f"its {home}" for home in homes)])
    raise FileNotFoundError(
        f"task {task} needs {' or '.join(names)} in {folder} ({places}): no such file"
    )


def plain_or_gzipped(*names: str) -> list[str]:
    """The names of files that may be packed."""
    return [name for plain in names for name in (plain, f"{plain}.gz")]


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


def file_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Read a file of JSON lines."""
    # Not by splitlines: a text may hold one of Unicode's own line ends.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            content = json.loads(line)
        except (ValueError, RecursionError) as error:
            problem = getattr(error, "msg", None) or str(error)
            raise ValueError(f"{place}: the row must be JSON, got {problem}") from None
        if not isinstance(content, dict):
            raise ValueError(f"{place}: the row must be a JSON object, got {content!r:.40}")
        yield place, content


def load_from_hub(
    task: str, path: str, *name: str, splits: Sequence[str], columns: Sequence[str]
) -> dict[str, Dataset]:
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
    chosen = (dataset.select_columns(list(columns)) for dataset in loaded)
    return dict(zip(splits, chosen, strict=True))


def stratified_split(
    classes: Sequence[Hashable], shares: Mapping[str, float], rest: str = "train"
) -> dict[str, list[int]]:
    """Draw splits in which each class has its share, rounded; the same for the same classes."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for row, name in enumerate(classes):
        members[name].append(row)
    splits: dict[str, list[int]] = {rest: [], **{split: [] for split in shares}}
    for name, rows in members.items():
        count = len(rows)
        random.Random(f"split {name}").shuffle(rows)  # a text is hashed the same way everywhere
        for split, share in shares.items():
            taken = round(share * count)
            splits[split] += rows[:taken]
            del rows[:taken]
        splits[rest] += rows
    return {split: sorted(rows) for split, rows in splits.items()}
