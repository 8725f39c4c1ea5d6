"""How far long work is: a bar where someone watches, else a line in the log now and then."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

EVERY = 30.0  # seconds between lines

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

_told = ContextVar("told", default=True)


def has_terminal() -> bool:
    """Whether someone watches: bars in a log file are noise."""
    return sys.stderr.isatty()


def watched(
    items: Iterable[Item], what: str, number: int, *, transient: bool = False
) -> Iterator[Item]:
    """The same items; on the way it is said how many of them there were."""
    if not _told.get():
        yield from items
        return
    if not has_terminal():
        yield from _logged(items, what, number)
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, what, number, console=Console(stderr=True), transient=transient)


def _logged(items: Iterable[Item], what: str, number: int) -> Iterator[Item]:
    start = told = time.monotonic()
    for count, item in enumerate(items):
        now = time.monotonic()
        if count and now - told >= EVERY:
            told, left = now, (now - start) / count * (number - count)
            logger.info("%s: %d of %d, about %.0f s left", what, count, number, left)
        yield item


@contextmanager
def silent() -> Iterator[None]:
    """Say nothing of what is done only to see how long it takes."""
    token = _told.set(False)
    try:
        yield
    finally:
        _told.reset(token)
