"""What a hook at an attention module tells the attention function that runs inside of it."""

from __future__ import annotations

import threading
from typing import Any

from torch import nn


class _Notes(threading.local):
    """The last note of each thread: one model may run in several at a time."""

    def __init__(self) -> None:
        self.module: nn.Module | None = None
        self.value: Any = None


_notes = _Notes()


def note(module: nn.Module, value: Any) -> None:
    """Note something at a module that is about to run."""
    _notes.module, _notes.value = module, value


def take_note(module: nn.Module) -> Any:
    """Return what was noted at a module, and keep it alive no longer."""
    value = _notes.value if _notes.module is module else None
    _notes.module = _notes.value = None
    return value
