"""What is shipped, what it needs to be imported, and the names it gives."""

import importlib
import json
import os
import pkgutil
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

PUBLIC_NAMES = [
    "ClusterGraph",
    "JatConfig",
    "PairGraph",
    "StoneGraph",
    "attach",
    "attention_graph",
    "calibrate",
    "clustered_attention",
    "detach",
    "disabled",
    "fidelity",
    "from_pretrained",
    "jump_attention",
    "jump_operator",
    "nn",
    "save_pretrained",
    "stone_graph",
    "summary",
    "transforms",
    "tree_graph",
    "using_global_tokens",
    "using_graphs",
]

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


def _extra_modules() -> list[str]:
    """Top-level modules of every package that only an extra asks for."""
    requirements = metadata.requires("jat_graph") or []
    names = {re.split(r"[^\w.-]", line)[0] for line in requirements if "extra ==" in line}
    # setuptools is torch's, and filelock the Hub's, without any extra of ours.
    shared = {"setuptools", "filelock"}
    wanted = {re.sub(r"[-_.]+", "-", name).lower() for name in names} - shared
    modules = {
        module
        for module, owners in metadata.packages_distributions().items()
        if wanted & {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners}
    }
    return sorted(modules)


def test_every_module_imports_and_heads_jump_with_the_extras_blocked() -> None:
    blocked = _extra_modules()
    known = {"accelerate", "datasets", "matplotlib", "numba", "pandas", "scipy", "sklearn"}
    assert known <= set(blocked)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_EXTRAS, json.dumps(blocked)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "worked\n"


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


def test_the_wheel_holds_every_module_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "jat_graph").rglob("*.py*")}
    sources = {name for name in sources if name.endswith((".py", ".pyi"))}
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    grids = {str(path.relative_to(ROOT)) for path in (ROOT / "jat_graph").rglob("*.toml")}
    data = {"jat_graph/py.typed", "jat_graph/jumps/operators/costs.json"}
    assets = {str(p.relative_to(ROOT)) for p in (ROOT / "jat_graph/looking/viewer/assets").iterdir()}
    assert shipped == sources | grids | data | assets


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    info = f"jat_graph-{jat_graph.__version__}.dist-info"
    described = wheel.read(f"{info}/METADATA").decode()
    assert "License-Expression: MIT" in described
    assert re.search(r"^Requires-Python: .*>=3\.10", described, re.MULTILINE)
    assert (
        "jat-graph = jat_graph.looking.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()
    )
    assert "The jat_graph developers" in wheel.read(f"{info}/licenses/LICENSE").decode()


def test_the_constraints_fit_the_ranges_and_name_every_dependency() -> None:
    from packaging.requirements import Requirement

    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"]
    pins = [Requirement(line) for line in lines]
    tried = {
        re.sub(r"[-_.]+", "-", pin.name).lower(): next(iter(pin.specifier)).version
        for pin in pins
        if pin.marker is None or pin.marker.evaluate()
    }
    extras = ["", *(metadata.metadata("jat_graph").get_all("Provides-Extra") or [])]
    for line in metadata.requires("jat_graph") or []:
        wanted = Requirement(line)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": one}) for one in extras):
            continue  # of another Python
        name = re.sub(r"[-_.]+", "-", wanted.name).lower()
        assert wanted.specifier.contains(tried[name]), f"{wanted} does not hold {tried[name]}"
    assert tried["torch"] == "2.13.0"


def test_the_public_names_are_these() -> None:
    assert jat_graph.__all__ == PUBLIC_NAMES
    assert set(PUBLIC_NAMES) <= set(dir(jat_graph))


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_a_public_name_can_be_used(name: str) -> None:
    assert getattr(jat_graph, name).__doc__


# Where names stood before the modules were put into rooms; whoever imports them there still may.
FORMER_PLACES = {
    "jat_graph.jumps": ("jump_attention", "jump_operator"),
    "jat_graph.inspection": (
        *("HeadReport", "HeadStatistics", "HeadView", "Inspection", "Jump", "SteppingStone"),
        *("graph_statistics", "inspect_text", "view_head"),
    ),
    "jat_graph.patterns": ("PatternChoice", "explain_pattern", "pattern_attention"),
    "jat_graph.training": ("JatTrainerMixin", "parameter_groups"),
    "jat_graph.transforms": ("AttentionToGraph",),
}


@pytest.mark.parametrize("module", FORMER_PLACES)
def test_public_names_are_still_where_they_were(module: str) -> None:
    for name in FORMER_PLACES[module]:
        assert getattr(importlib.import_module(module), name).__doc__


@pytest.mark.parametrize("room", ["hf", "inspection", "nn", "operators", "patterns"])
def test_a_room_is_found_without_an_import_of_its_own(room: str) -> None:
    code = f"import jat_graph; print(jat_graph.{room}.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout == f"jat_graph.{room}\n", run.stderr


def test_the_citation_is_of_this_version_and_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == jat_graph.__version__
    changes = (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8")
    assert f"## {citation['version']} - {citation['date-released']}\n" in changes
    (paper,) = citation["references"]
    described = (ROOT / "docs" / "faithfulness.md").read_text("utf-8").replace("\n", " ")
    assert paper["title"] in described


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'jump_atention'"):
        _ = jat_graph.jump_atention


def test_the_version_has_one_source() -> None:
    assert metadata.version("jat_graph") == jat_graph.__version__


def test_importing_the_library_does_not_load_the_adapter() -> None:
    code = "import sys, jat_graph; print([m for m in sys.modules if m.startswith('jat_graph.hf')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout == "[]\n", run.stderr


# What takes seconds to load.
HEAVY = (
    "numba",
    "torch._dynamo",
    "torch.nn.attention.flex_attention",
    "torch_geometric",
    "transformers",
)


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import jat_graph", ("torch", *HEAVY)),
        ("import jat_graph.jumps.config", HEAVY),
        ("from jat_graph import jump_attention, jump_operator", HEAVY),
        ("from jat_graph.patterns import pattern_attention", HEAVY),
        ("from jat_graph import attach", ("numba", "torch_geometric")),
    ],
)
def test_nothing_is_loaded_before_it_is_used(statement: str, absent: tuple[str, ...]) -> None:
    code = f"{statement}; import sys; print([name for name in {absent} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout == "[]\n", run.stderr


def test_the_adapter_loads_few_modules() -> None:
    code = (
        "import sys, jat_graph.hf; print(sum(m.split('.')[0] == 'jat_graph' for m in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert int(run.stdout) <= 60, run.stderr


def test_every_all_names_what_is_there() -> None:
    for found in pkgutil.walk_packages(jat_graph.__path__, "jat_graph."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{found.name} has no {name}"


def _dry_run(folder: Path, *settings: str) -> str:
    """Return what ``make test`` would run in a new environment."""
    command = ["make", "-n", "test", f"VENV={folder}/venv", "JOBS=3", *settings]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    return run.stdout


def test_make_compiles_two_packages_with_all_cores_unless_told_not_to(tmp_path: Path) -> None:
    whole, without = _dry_run(tmp_path), _dry_run(tmp_path, "SPARSE=0")
    assert "min(3, memory" in whole
    # setuptools would build modules of torch-sparse together, which share one file for ninja.
    builds = re.findall(r"[^{&\n]*--no-build-isolation[^&}\n]*", whole)
    assert [re.findall(r"DIST_EXTRA_CONFIG|MAX_JOBS|torch-\w+", build) for build in builds] == [
        ["DIST_EXTRA_CONFIG", "torch-scatter"],
        ["MAX_JOBS", "torch-sparse"],
    ] * 2
    assert "torch-sparse" not in without and "torch_sparse" not in without
    assert all(
        "-m pytest" in recipes and "'.[examples,viz,probes,atlas,dev,docs]'" in recipes
        for recipes in (whole, without)
    )
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"^make .*$", ci, re.MULTILINE) == ["make test SPARSE=1"]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_tests_that_need_two_packages_are_skipped_and_counted(workers: str, tmp_path: Path) -> None:
    blocked = "import sys\nsys.modules |= dict.fromkeys(('torch_sparse', 'torch_scatter'))\n"
    (tmp_path / "sitecustomize.py").write_text(blocked, encoding="utf-8")
    command = ["-m", "pytest", "tests/nn/test_jump_conv.py", "-k", "loop and (csr or torch_sparse)"]
    run = subprocess.run(
        [sys.executable, *command, "-n", workers],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "CI": "false"},
    )
    *_, counts, last = run.stdout.splitlines()
    assert "1 passed, 1 skipped" in counts, run.stdout
    assert last == "1 tests were skipped: torch-scatter and torch-sparse are not installed"


def test_the_sparse_extra_is_in_use_where_it_is_installed() -> None:
    from torch_geometric.typing import WITH_TORCH_SCATTER, WITH_TORCH_SPARSE

    installed = find_spec("torch_sparse") is not None
    assert (WITH_TORCH_SCATTER, WITH_TORCH_SPARSE) == (installed, installed)
    assert installed or os.environ.get("CI") != "true"
