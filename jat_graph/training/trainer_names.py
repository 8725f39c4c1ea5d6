"""The names of transformers' ``TrainingArguments``, without importing them, which takes seconds."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

_CLASS, _FILE = "TrainingArguments", "training_args.py"


def argument_names() -> frozenset[str]:
    """The fields that the installed source lists; none where there is no source that says all."""
    package = find_spec("transformers")
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder) / _FILE
        if path.is_file():
            body = ast.parse(path.read_text(encoding="utf-8")).body
            classes = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
            try:
                return frozenset(_fields(_CLASS, classes))
            except KeyError:  # it inherits from elsewhere
                break
    return frozenset()


def _fields(name: str, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """The annotated names of a dataclass, and of those that it inherits from."""
    node = classes[name]
    found = {
        entry.target.id
        for entry in node.body
        if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name)
    }
    return found.union(*(_fields(ast.unparse(base), classes) for base in node.bases))
