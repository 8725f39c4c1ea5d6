"""How far long work is: a bar where someone watches, else a line in the log now and then."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

EVERY = 30.0  # seconds between lines

logger = logging.getLogger(__name__)

Item = TypeVar("Item")


def track_progress(
    items: Iterable[Item], what: str, number: int, *, transient: bool = False
) -> Iterator[Item]:
    """The same items; on the way it is said how many of them there were."""
    if sys.stderr.isatty():  # bars in a log file are noise
        from rich.console import Console
        from rich.progress import track

        yield from track(items, what, number, console=Console(stderr=True), transient=transient)
        return
    start = latest = time.monotonic()
    for count, item in enumerate(items):
        now = time.monotonic()
        if count and now - latest >= EVERY:
            latest, left = now, (now - start) / count * (number - count)
            logger.info("%s: %d of %d, about %.0f s left", what, count, number, left)
        yield item
