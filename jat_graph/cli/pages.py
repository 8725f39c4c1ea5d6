"""Pages of help: options under the titles of their sections, and no name cut or broken."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

INDENT, COLUMN, WIDEST = 2, 32, 100  # characters; names end before the column of their texts

Records = Iterable[tuple[str, str]]


class PageCommand(TyperCommand):
    """A command whose help is a page."""

    def get_help(self, ctx: Any) -> str:
        """Its usage, what it does, and its options."""
        return _page(ctx, self.help, _sections(self, ctx))


class PageGroup(TyperGroup):
    """The program, whose page lists the commands, too."""

    def get_help(self, ctx: Any) -> str:
        """Its usage, options and commands."""
        commands = [(name, _paragraphs(self.commands[name].help)[0]) for name in self.commands]
        return _page(ctx, self.help, {**_sections(self, ctx), "Commands": commands})


def _sections(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """The names and texts of a command's arguments and options, by title."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            usual = f"{parameter.param_type_name}s".capitalize()
            title = getattr(parameter, "rich_help_panel", None) or usual
            sections.setdefault(title, []).append(record)
    return sections


def _page(ctx: Any, text: str | None, sections: dict[str, list[tuple[str, str]]]) -> str:
    parts = [ctx.get_usage(), *(_wrap(paragraph, INDENT) for paragraph in _paragraphs(text))]
    for title, records in sections.items():
        parts.append("\n".join([f"{title}:", *(_entry(*record) for record in records)]))
    return "\n\n".join(parts)


def _paragraphs(text: str | None) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n")]


def _entry(name: str, text: str) -> str:
    """A name and its text, which begins on a line of its own beside a long name."""
    wrapped = _wrap(text, COLUMN)
    first = " " * INDENT + name
    if len(first) + 2 > COLUMN:
        return f"{first}\n{wrapped}" if text else first
    return first + wrapped[len(first) :] if text else first


def _wrap(text: str, indent: int) -> str:
    width = max(min(shutil.get_terminal_size().columns, WIDEST), COLUMN + 20)
    margin = " " * indent
    return textwrap.fill(
        text,
        width - 1,
        initial_indent=margin,
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,
    )
