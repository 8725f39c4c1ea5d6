"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ENDINGS = (".png", ".svg", ".pdf")  # of pictures


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a file beside ``path`` to write to, and rename it to ``path`` if that went well."""
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent
        )
    except OSError as error:  # which names a file that nobody asked for
        raise type(error)(error.errno, error.strerror, str(path)) from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp's files are private; ours are ordinary ones
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_target(path: Path | None) -> None:
    """Refuse a file that could not be written because it has no folder, or is one."""
    if path is not None and not path.parent.is_dir():
        where = f"{path} must be a file in a folder that is there"
        raise FileNotFoundError(f"{where}, got none at {path.parent}")
    if path is not None and path.is_dir():
        raise OSError(f"{path} must be a file, got a folder")


def check_picture(path: Path, name: str = "picture") -> None:
    """Refuse a file that no picture could be written to."""
    if path.suffix.lower() not in ENDINGS:
        *others, last = ENDINGS
        raise ValueError(
            f"{name} must be a file name ending in {', '.join(others)} or {last}, got {str(path)!r}"
        )
    check_target(path)


def check_model_name(name: str) -> None:
    """Refuse a folder that is not there, which would be looked for on the Hub for long."""
    path = Path(name)
    is_place = name.startswith((".", "/", "~", os.sep)) or name.endswith(("/", os.sep))
    is_deep = len(path.parts) > 2 or (len(path.parts) == 2 and path.parent.is_dir())
    if not path.is_dir() and (is_place or is_deep):  # the Hub's names are OWNER/NAME
        raise ValueError(
            f"model must be a folder or a Hub name to load, got {name!r}: no such folder"
        )


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8; the file appears whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def parse_object(text: str | bytes, where: str) -> dict[str, Any]:
    """The JSON object that a text is, or one line that names the place in ``where``."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where} must be JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{where} must be a JSON object, got {type(content).__name__}")
    return content


def read_object(path: str | Path, what: str) -> dict[str, Any]:
    """Read a JSON object."""
    return parse_object(Path(path).read_bytes(), f"{what} {path}")


class _PlainBuilder(ElementTree.TreeBuilder):
    """Builds a tree of a file that declares no entities, so that none is expanded or fetched."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError(f"must declare no document type, got {name!r}")


def parse_xml(content: bytes, where: str) -> ElementTree.Element:
    """The tree of XML that declares no entities, or one line that names the place in ``where``."""
    try:
        return ElementTree.fromstring(content, ElementTree.XMLParser(target=_PlainBuilder()))
    except ElementTree.ParseError as error:
        raise ValueError(f"{where} must be XML, got {error}") from None
    except ValueError as error:
        raise ValueError(f"{where} {error}") from None
