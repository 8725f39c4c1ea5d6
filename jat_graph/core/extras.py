"""Packages that only an extra brings, imported where they are used."""

from importlib import import_module
from typing import Any


def import_extra(name: str, extra: str = "probes") -> Any:
    """Import a module; where its package is missing, the error names the extra that has it."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{package} is missing: pip install 'jat_graph[{extra}]'") from error
