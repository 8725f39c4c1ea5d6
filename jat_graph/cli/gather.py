"""Let several commands share options: a dataclass lists them once, each command gathers them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints


def gather(**groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that dataclasses list.

    Reference:
        typer reads ``__signature__``; that is how one list serves several commands.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            for argument, group in groups.items():
                given[argument] = group(**{f.name: given.pop(f.name) for f in fields(group)})
            command(**given)

        own = inspect.signature(command, eval_str=True)
        kept = [p for p in own.parameters.values() if p.name not in groups]
        added = [parameter for group in groups.values() for parameter in _parameters(group)]
        merged = sorted([*kept, *added], key=lambda p: p.default is not p.empty)
        keyword = inspect.Parameter.KEYWORD_ONLY
        signature = own.replace(parameters=[p.replace(kind=keyword) for p in merged])
        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _parameters(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    signature = inspect.signature(group)
    return [
        parameter.replace(annotation=hints[name])
        for name, parameter in signature.parameters.items()
    ]
