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
ROW = re.compile(r"^\| \[(?P<name>\w+)\]\(\./(?P<file>[\w.]+)\) \|(?P<cells>.*)\|$", re.MULTILINE)
COMMAND = re.compile(r"`python -m (?P<module>[\w.]+)(?P<options>[^`]*)`")


def _rows() -> dict[str, list[str]]:
    text = (ROOT / "models" / "README.md").read_text(encoding="utf-8")
    return {
        row["name"]: [cell.strip() for cell in row["cells"].split("|")]
        for row in ROW.finditer(text)
    }


def _imports(path: Path) -> list[tuple[str, str]]:
    """Return the modules of ours and the names that a file imports from them."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jat_graph"):
            found += [(str(node.module), alias.name) for alias in node.names]
        if isinstance(node, ast.Import):
            found += [(a.name, "__all__") for a in node.names if a.name.startswith("jat_graph")]
    return found


def test_the_table_has_a_row_for_every_model_and_no_other() -> None:
    assert sorted(_rows()) == MODELS


@pytest.mark.parametrize("name", MODELS)
def test_a_row_is_full_and_its_command_exists(name: str) -> None:
    source, task, result, command = _rows()[name]
    assert source and task and result
    found = COMMAND.fullmatch(command)
    assert found is not None
    script = found["module"].removeprefix("examples.")
    assert script == name or f"--model {name}" in found["options"]
    example = (ROOT / "examples" / f"{script}.py").read_text(encoding="utf-8")
    assert set(re.findall(r"--[\w-]+", found["options"])) <= known_options(found["module"])
    assert f"from models.{name} import" in example or f"models.{name}" in example
    assert (ROOT / "tests" / "examples" / f"test_{script}.py").exists()


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_built_from_public_names(name: str) -> None:
    for module, imported in _imports(ROOT / "models" / f"{name}.py"):
        assert module.count(".") <= 1 and "._" not in module, module
        public = importlib.import_module(module).__all__
        assert imported in (*public, "__all__"), f"{module}.{imported} is not public"
