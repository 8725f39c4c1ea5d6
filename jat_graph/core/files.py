"""Files that appear whole or not at all, one way to read text, and the screen."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree

ENDINGS = (".png", ".svg", ".pdf")  # of pictures
SURROGATES = re.compile("[\ud800-\udfff]")  # halves of what UTF-16 writes as two
# Those that JSON spells out: the first half without the second, or the other way round.
ESCAPED = re.compile(
    r"(?<!\\)(?:\\\\)*\\u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])"
    r"|[c-fC-F]..(?<!\\u[dD][89abAB]..\\u[dD]...))"
)
MARKS = re.compile("^\ufeff+", re.MULTILINE)  # of files, and of those that were joined to one


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
        where = f"{path} must be a file in an existing folder"
        raise FileNotFoundError(f"{where}, got none at {path.parent}")
    if path is not None and path.is_dir():
        raise OSError(f"{path} must be a file, got a folder")


def check_picture(path: Path, name: str = "picture") -> None:
    """Refuse a file that no picture could be written to."""
    if path.suffix.lower() not in ENDINGS:
        *others, last = ENDINGS
        wanted = f"a file name ending in {', '.join(others)} or {last}"
        raise ValueError(f"{name} must be {wanted}, got {str(path)!r}")
    check_target(path)


def check_model_name(name: str) -> None:
    """Refuse a folder that is not there, which would be looked for on the Hub for long."""
    path = Path(name)
    is_place = name.startswith((".", "/", "~", os.sep)) or name.endswith(("/", os.sep))
    is_deep = len(path.parts) > 2 or (len(path.parts) == 2 and path.parent.is_dir())
    if not path.is_dir() and (is_place or is_deep):  # the Hub's names are OWNER/NAME
        wanted = "a folder or a Hub name to load"
        raise ValueError(f"model must be {wanted}, got {name!r}: no such folder")


def check_unicode(name: object, text: Any, lone: re.Pattern[str] = SURROGATES) -> None:
    """Refuse a text, or words, with a lone surrogate, which no tokenizer and no file takes."""
    for part in text if isinstance(text, list | tuple) else (text,):
        if not isinstance(part, str):
            raise ValueError(f"{name} must be text, got {part!r:.60}")
        if (found := lone.search(part)) is not None:
            got = f"a lone surrogate at {found.start()}"
            raise ValueError(f"{name} must be Unicode text, got {got}")


def replace_unencodable() -> None:
    """Let the screen show a question mark for a letter that its encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8; the file appears whole or not at all."""
    check_unicode(path, text)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_text(path: str | Path) -> str:
    """Read a file of text, plain or packed by gzip; what is wrong with it is one line."""
    path = Path(path)
    content = path.read_bytes()
    try:
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        # Others are UTF-8; some editors mark what they write in UTF-16.
        marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = content.decode("utf-16" if marked else "utf-8")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} is cut off or damaged: {error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8, got a bad byte at {error.start}") from None
    return MARKS.sub("", text)


def open_text(path: str | Path) -> TextIO:
    """Read the same line by line; what ends a line is a line feed, a carriage return, or both."""
    return io.StringIO(read_text(path), newline=None)


def parse_json(text: str, where: object) -> Any:
    """What a text in JSON holds, or one line that names the place in ``where``."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError(f"{where} must be JSON, got brackets that are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{where} must be JSON: {error}") from None
    check_unicode(where, text, ESCAPED)
    return content


def parse_object(text: str, where: str) -> dict[str, Any]:
    """The JSON object that a text is, or one line that names the place in ``where``."""
    content = parse_json(text, where)
    if not isinstance(content, dict):
        raise ValueError(f"{where} must be a JSON object, got {type(content).__name__}")
    return content


def read_object(path: str | Path, what: str) -> dict[str, Any]:
    """Read a JSON object."""
    return parse_object(read_text(path), f"{what} {path}")


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
