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
            latest = now
            spent = now - start
            left = spent / count * (number - count)
            said = "%s: %d of %d in %.0f s, at this pace %.0f s more"
            logger.info(said, what, count, number, spent, left)
        yield item
