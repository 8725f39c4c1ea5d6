"""What is shipped, what it needs to be imported, and the names it gives."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml  # of transformers

import jat_graph

ROOT = Path(__file__).resolve().parents[1]

PUBLIC_NAMES = """
    ClusterGraph JatConfig PairGraph StoneGraph attach attention_graph calibrate clustered_attention
    detach disabled fidelity from_pretrained jump_attention jump_operator nn save_pretrained
    stone_graph summary transforms tree_graph using_global_tokens using_graphs
""".split()

# Imports every module of ours, with the packages named on the command line made unimportable,
# then runs a head that joins some pairs, so that import alone is not taken for work.
WITHOUT_EXTRAS = """
import json, pkgutil, re, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
import torch, jat_graph
for module in pkgutil.walk_packages(jat_graph.__path__, "jat_graph."):
    if not re.search("__main__$|_cpu$|[.]cpu[.]", module.name):  # of cpu: in the words of numba
        __import__(module.name)
for name in jat_graph.__all__:
    getattr(jat_graph, name)
torch.manual_seed(0)
query, key, value = 1.5 * torch.randn(3, 1, 2, 12, 8)
config = jat_graph.JatConfig.paper()
graphs = jat_graph.attention_graph(query, key, config=config)
density = graphs.num_edges / (2 * 12 * 11)
assert 0.1 < density < 0.9, density
output = jat_graph.jump_attention(query, key, value, config=config)
assert output.isfinite().all()
base = torch.nn.functional.scaled_dot_product_attention(query, key, value)
assert not torch.allclose(output, base)
print("worked")
"""


def printed(code: str, *arguments: str) -> str:
    """Return what code prints in a Python of its own."""
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    return run.stdout


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _extra_modules() -> list[str]:
    """Top-level modules of every package that only an extra asks for."""
    requirements = metadata.requires("jat_graph") or []
    names = {re.split(r"[^\w.-]", line)[0] for line in requirements if "extra ==" in line}
    # setuptools is torch's, and filelock the Hub's, without any extra of ours.
    wanted = {normalized(name) for name in names} - {"setuptools", "filelock"}
    modules = {
        module
        for module, owners in metadata.packages_distributions().items()
        if wanted & {normalized(owner) for owner in owners}
    }
    return sorted(modules)


@pytest.mark.slow
def test_every_module_imports_and_heads_jump_with_the_extras_blocked() -> None:
    blocked = _extra_modules()
    known = {"accelerate", "datasets", "matplotlib", "numba", "pandas", "scipy", "sklearn"}
    assert known <= set(blocked)
    assert printed(WITHOUT_EXTRAS, json.dumps(blocked)) == "worked\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy: a build leaves folders in its source."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(
        ROOT / "jat_graph", source / "jat_graph", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("tests", "docs", "models", "examples"):
        (source / name).mkdir()
        (source / name / "__init__.py").touch()
    command = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    run = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = ROOT / "jat_graph"
    kinds = ("*.py", "*.pyi", "*.toml", "looking/viewer/assets/*", "py.typed")
    files = {path for kind in kinds for path in package.rglob(kind)}
    files |= {package / "hf" / "card.md", package / "jumps" / "operators" / "costs.json"}
    assert shipped == {str(path.relative_to(ROOT)) for path in files}


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    info = f"jat_graph-{jat_graph.__version__}.dist-info"
    described = wheel.read(f"{info}/METADATA").decode()
    assert "License-Expression: MIT" in described
    assert re.search(r"^Requires-Python: .*>=3\.10", described, re.MULTILINE)
    scripts = wheel.read(f"{info}/entry_points.txt").decode()
    assert "jat-graph = jat_graph.looking.cli:main" in scripts
    assert "The jat_graph developers" in wheel.read(f"{info}/licenses/LICENSE").decode()


def test_the_constraints_fit_the_ranges_and_name_every_dependency() -> None:
    from packaging.requirements import Requirement

    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"]
    pins = [Requirement(line) for line in lines]
    tried = {
        normalized(pin.name): next(iter(pin.specifier)).version
        for pin in pins
        if pin.marker is None or pin.marker.evaluate()
    }
    extras = ["", *(metadata.metadata("jat_graph").get_all("Provides-Extra") or [])]
    for line in metadata.requires("jat_graph") or []:
        wanted = Requirement(line)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": one}) for one in extras):
            continue  # of another Python
        version = tried[normalized(wanted.name)]
        assert wanted.specifier.contains(version), f"{wanted} does not hold {version}"
    assert tried["torch"] == "2.13.0"


def test_the_public_names_are_these_and_can_be_used() -> None:
    assert jat_graph.__all__ == PUBLIC_NAMES
    assert set(PUBLIC_NAMES) <= set(dir(jat_graph))
    assert all(getattr(jat_graph, name).__doc__ for name in PUBLIC_NAMES)
    with pytest.raises(AttributeError, match="no attribute 'jump_atention'"):
        _ = jat_graph.jump_atention


# Where names stood before the modules were put into rooms; whoever imports them there still may.
FORMER_PLACES = {
    "jumps": "jump_attention jump_operator",
    "inspection": "HeadReport HeadStatistics HeadView Inspection Jump SteppingStone "
    "graph_statistics inspect_text view_head",
    "patterns": "PatternChoice explain_pattern pattern_attention",
    "training": "JatTrainerMixin parameter_groups",
    "transforms": "AttentionToGraph",
}


@pytest.mark.parametrize("module", FORMER_PLACES)
def test_public_names_are_still_where_they_were(module: str) -> None:
    for name in FORMER_PLACES[module].split():
        assert getattr(importlib.import_module(f"jat_graph.{module}"), name).__doc__


@pytest.mark.slow
@pytest.mark.parametrize("room", ["hf", "inspection", "nn", "operators", "patterns"])
def test_a_room_is_found_without_an_import_of_its_own(room: str) -> None:
    assert printed(f"import jat_graph; print(jat_graph.{room}.__name__)") == f"jat_graph.{room}\n"


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == jat_graph.__version__ == metadata.version("jat_graph")
    changes = (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8")
    assert f"## {citation['version']} - {citation['date-released']}\n" in changes


# What takes seconds to load.
HEAVY = (
    "numba",
    "torch._dynamo",
    "torch.nn.attention.flex_attention",
    "torch_geometric",
    "transformers",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import jat_graph", ("torch", "jat_graph.hf", *HEAVY)),
        ("import jat_graph.jumps.config", HEAVY),
        ("from jat_graph import jump_attention, jump_operator", HEAVY),
        ("from jat_graph.patterns import pattern_attention", HEAVY),
        ("from jat_graph import attach", ("numba", "torch_geometric")),
    ],
)
def test_nothing_is_loaded_before_it_is_used(statement: str, absent: tuple[str, ...]) -> None:
    code = f"{statement}; import sys; print([name for name in {absent} if name in sys.modules])"
    assert printed(code) == "[]\n"


def test_the_sparse_extra_is_in_use_where_it_is_installed() -> None:
    from torch_geometric.typing import WITH_TORCH_SCATTER, WITH_TORCH_SPARSE

    installed = find_spec("torch_sparse") is not None
    assert (WITH_TORCH_SCATTER, WITH_TORCH_SPARSE) == (installed, installed)
    assert installed or os.environ.get("CI") != "true"
