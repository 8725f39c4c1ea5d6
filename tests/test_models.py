"""Every model has its row, its example and its test, and is built from what users have."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.commands import known_options

ROOT = Path(__file__).resolve().parents[1]
SHARED = {"blocks", "triplet_attention"}  # layers, and what models have in common
MODELS = sorted({path.stem for path in (ROOT / "models").glob("*.py")} - SHARED)
README = (ROOT / "models" / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[(\w+)\]\(\./[\w.]+\) \|.*\| `python -m ([\w.]+)([^`]*)` \|$", re.MULTILINE)
ROWS = {name: (module, options) for name, module, options in ROW.findall(README)}


@pytest.mark.parametrize("name", sorted({*MODELS, *ROWS}))
def test_a_model_has_a_row_whose_command_exists(name: str) -> None:
    module, options = ROWS[name]
    script = module.removeprefix("examples.")
    assert script == name or f"--model {name}" in options
    assert set(re.findall(r"--[\w-]+", options)) <= known_options(module)
    example = (ROOT / "examples" / f"{script}.py").read_text(encoding="utf-8")
    assert f"models.{name}" in example
    assert (ROOT / "tests" / "examples" / f"test_{script}.py").exists()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_built_from_public_names(name: str) -> None:
    for node in ast.walk(ast.parse((ROOT / "models" / f"{name}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [(alias.name, "__all__") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [(str(node.module), alias.name) for alias in node.names]
        else:
            continue
        for module, imported in modules:
            if module.startswith("jat_graph"):
                assert module.count(".") <= 1 and "._" not in module, module
                public = importlib.import_module(module).__all__
                assert imported in (*public, "__all__"), f"{module}.{imported} is not public"
