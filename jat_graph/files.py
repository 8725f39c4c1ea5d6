"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a file beside ``path`` to write to, and rename it to ``path`` if that went well.

    Args:
        path: The file to write; its folder must exist.

    Yields:
        The temporary file, with the same suffix.

    Raises:
        OSError: If the folder is missing, not writable, or full; ``path`` is then as it was.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
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


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8; the file appears whole or not at all.

    Args:
        path: The file to write; its folder must exist.
        text: The content.

    Raises:
        OSError: If the folder is missing, not writable, or full; ``path`` is then as it was.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
