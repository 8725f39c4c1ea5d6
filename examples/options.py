"""Command lines of the single scripts: options from a dataclass, and errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, field
from pathlib import Path
from typing import Any, TypeVar

import typer
from transformers import HfArgumentParser

from jat_graph.core.files import check_target, check_unicode, replace_unencodable

OptionsT = TypeVar("OptionsT")
# Options of any script that count something.
COUNTS = set("batch_size epochs limit rounds seeds steps texts threads trees".split())
WRITTEN = ("output", "json", "plot")  # options that name a file to write


def option(text: str, default: Any = MISSING) -> Any:
    """A field of a dataclass of options; one without a default is required."""
    if isinstance(default, list):
        return field(default_factory=lambda: default, metadata={"help": text})
    return field(default=default, metadata={"help": text})


def example(
    kind: type[OptionsT],
) -> Callable[[Callable[[OptionsT], Iterator[str]]], Callable[[], None]]:
    """Make a script of a function that yields lines: it reads the options from the command line.

    What does not fit is said in one line.
    """

    def decorate(run: Callable[[OptionsT], Iterator[str]]) -> Callable[[], None]:
        def main() -> None:
            module = sys.modules[run.__module__]
            classes: Any = kind
            replace_unencodable()
            parser = HfArgumentParser(classes, description=str(module.__doc__).splitlines()[0])
            (options,) = parser.parse_args_into_dataclasses()
            try:
                for name, value in vars(options).items():
                    check_unicode(name, value if isinstance(value, str) else "")
                    if name in COUNTS and value is not None and value < 1:
                        raise ValueError(f"{name} must be at least 1, got {value}")
                    if name in WRITTEN:
                        check_target(value)
                    if name == "learning_rate" and value is not None and not value > 0:
                        raise ValueError(f"{name} must be above 0, got {value}")
                for line in run(options):
                    typer.echo(line)
            except (ImportError, OSError, ValueError) as error:
                first = str(error).splitlines()[0]
                raise SystemExit(f"{Path(str(module.__file__)).stem}: error: {first}") from None

        return main

    return decorate
