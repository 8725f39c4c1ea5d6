"""Results on disk: files that appear whole, what may stand in one of them, and who may write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jat_graph.files import parse_object, write_text
from jat_graph.training.storage import difference, prepare_folder

_DIGITS = 12


def fingerprint(*parts: Any) -> str:
    """A digest of what results share that may stand in one file."""
    text = json.dumps(parts, sort_keys=True, default=dict)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def check_same(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    where: str,
    remedy: str = "name another folder",
) -> None:
    """Refuse settings that are not those asked for."""
    if changed := difference(old, new):
        raise ValueError(f"{where} holds results with {changed}: {remedy}")


def pop_version(content: dict[str, Any], version: int, where: str, command: str) -> None:
    """Take the version out of what a command has written, and refuse another one."""
    if (found := content.pop("version", None)) != version:
        raise ValueError(
            f"{where} must be those of jat-graph {command}, version {version}, "
            f"got version {found!r}"
        )


def write_lines(path: str | Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines; the file appears whole or not at all, and NaN is never written."""
    texts = (json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
    write_text(path, "".join(texts))


def read_lines(path: str | Path, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The JSON objects of a file of lines, each with what messages call its place."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{where} must be text in UTF-8") from None
    # splitlines would also split at what JSON leaves as it is within a text, as U+2028
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        place = f"{where}, line {number}"
        yield place, parse_object(line, place)


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Keep other processes out of a folder; a process that is killed leaves no lock behind."""
    from filelock import FileLock, Timeout

    prepare_folder(folder.parent)
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
