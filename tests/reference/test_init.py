"""The oracles depend on torch and the standard library only."""

import ast
import sys
from pathlib import Path

import jat_graph.reference


def test_imports_only_torch_and_the_standard_library():
    folder = Path(jat_graph.reference.__file__).parent
    files = sorted(folder.glob("*.py"))
    assert len(files) > 5
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module]
            else:
                continue
            for module in modules:
                top = module.split(".")[0]
                own = module.startswith("jat_graph.reference.")
                known = own or top == "torch" or top in sys.stdlib_module_names
                assert known, f"{file.name}: {module}"


def test_every_public_name_exists():
    for name in jat_graph.reference.__all__:
        assert getattr(jat_graph.reference, name).__doc__
