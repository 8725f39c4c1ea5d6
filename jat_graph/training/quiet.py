"""Keep known noise of transformers away, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

# Logger, and words of its messages that are no news to someone who trains:
# a new classification head is new, and checkpoints of one second are sorted by number.
_NOISE = {
    "transformers.modeling_utils": "LOAD REPORT",
    "transformers.trainer_utils": "mtime may not be reliable",
}


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the bars that show weights being loaded and saved, and messages that are no news."""
    from transformers.utils import logging as bars

    had_bars = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()  # type: ignore[no-untyped-call]
    for name in _NOISE:
        logging.getLogger(name).addFilter(_is_news)
    try:
        yield
    finally:
        for name in _NOISE:
            logging.getLogger(name).removeFilter(_is_news)
        if had_bars:
            bars.enable_progress_bar()  # type: ignore[no-untyped-call]


def _is_news(record: logging.LogRecord) -> bool:
    return _NOISE[record.name] not in record.getMessage()
