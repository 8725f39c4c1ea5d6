"""What is shipped, what it needs to be imported, and the names it gives."""

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
from typing import Any

import pandas as pd
import pytest
import yaml  # of transformers

import jat_graph
from jat_graph.probes import Findings, read_treebank
from jat_graph.viz import draw_patterns

ROOT = Path(__file__).resolve().parents[1]

PUBLIC_NAMES = """
    ClusterGraph JatConfig PairGraph StoneGraph attach attention_graph calibrate clustered_attention
    detach disabled fidelity from_pretrained jump_attention jump_operator nn save_pretrained
    stone_graph summary supports transforms tree_graph using_global_tokens using_graphs
""".split()

# Imports every module of ours, with the packages named on the command line made unimportable,
# then runs heads that join some pairs, so that import alone is not taken for work.
WITHOUT_EXTRAS = """
import json, pkgutil, re, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
import torch, jat_graph
for module in pkgutil.walk_packages(jat_graph.__path__, "jat_graph."):
    if not re.search("__main__$|_cpu$|[.][cg]pu[.]", module.name):  # of numba's, Triton's words
        __import__(module.name)
for name in jat_graph.__all__:
    getattr(jat_graph, name)
torch.manual_seed(0)
heads = 1.5 * torch.randn(3, 1, 2, 12, 8, dtype=torch.float64)
graphs = jat_graph.attention_graph(*heads[:2], config=jat_graph.JatConfig.paper(max_neighbors=6))
density = graphs.num_edges / (2 * 12 * 11)
assert 0.1 < density < 0.9, density
outputs = [torch.nn.functional.scaled_dot_product_attention(*heads)]
for backend in ("dense", "sparse", "threshold"):
    config = jat_graph.JatConfig.paper(backend=backend, hop_weights=(0.5, 0.5))
    outputs.append(jat_graph.jump_attention(*heads, config=config))
assert not torch.allclose(*outputs[:2])
for output in outputs[2:]:
    torch.testing.assert_close(output, outputs[1], rtol=1e-10, atol=1e-10)
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


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_says_what_it_is(tmp_path: Path) -> None:
    source = tmp_path / "source"  # a copy: a build leaves folders in its source
    shutil.copytree(
        ROOT / "jat_graph", source / "jat_graph", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("tests", "docs", "models", "examples"):
        (source / name).mkdir()
        (source / name / "__init__.py").touch()
    command = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    run = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr

    (path,) = tmp_path.glob("*.whl")
    wheel = zipfile.ZipFile(path)
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    package = ROOT / "jat_graph"
    kinds = ("*.py", "*.pyi", "*.toml", "looking/viewer/assets/*", "py.typed")
    files = {path for kind in kinds for path in package.rglob(kind)}
    files |= {package / "hf" / "card.md", package / "jumps" / "operators" / "costs.json"}
    assert shipped == {str(path.relative_to(ROOT)) for path in files}

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


LIGHT = {
    "import jat_graph": ("torch", "jat_graph.hf", *HEAVY),
    "import jat_graph.jumps.config, jat_graph.jumps.kernels": HEAVY,
    "from jat_graph import jump_attention, jump_operator": HEAVY,
    "from jat_graph.patterns import pattern_attention": HEAVY,
    "from jat_graph import attach": ("numba", "torch_geometric"),
}
# Each is at hand without an import of its own, and none imports a later one.
ROOMS = ("operators", "nn", "inspection")
LOADING = f"""
import sys
sys.modules["triton"] = None  # importing it fails, and heads on the CPU do without
for statement, absent in {LIGHT}.items():
    exec(statement)
    loaded = [name for name in absent if name in sys.modules]
    assert not loaded, (statement, loaded)
for room in {ROOMS}:
    assert room not in vars(jat_graph)
    assert getattr(jat_graph, room).__name__ == f"jat_graph.{{room}}"
import torch
torch.set_num_threads(1)
heads = (1.5 * torch.randn(3, 1, 2, 40, 8)).requires_grad_()
base = torch.nn.functional.scaled_dot_product_attention(*heads)
for backend in ("dense", "sparse", "threshold"):
    config = jat_graph.JatConfig.paper(backend=backend, key_selection="significance", num_keys=20)
    output = jump_attention(*heads, config=config)
    output.sum().backward()
    assert not torch.allclose(output, base)
assert "numba" in sys.modules and torch.get_num_threads() == 1
print("worked")
"""


@pytest.mark.slow
def test_nothing_is_loaded_before_it_is_used_and_rooms_need_no_import_of_their_own() -> None:
    assert printed(LOADING) == "worked\n"


def test_the_sparse_extra_is_in_use_where_it_is_installed() -> None:
    from torch_geometric.typing import WITH_TORCH_SCATTER, WITH_TORCH_SPARSE

    installed = find_spec("torch_sparse") is not None
    assert (WITH_TORCH_SCATTER, WITH_TORCH_SPARSE) == (installed, installed)
    assert installed or os.environ.get("CI") != "true"


CALLS: Any = [
    ("conllu", "probes", read_treebank),
    ("scipy", "probes", lambda path: read_treebank(path)[0].distances),
    ("tabulate", "probes", lambda _: Findings("x", "", pd.DataFrame({"a": [1]}), {}).to_markdown()),
    ("matplotlib", "viz", lambda _: draw_patterns(["window:6"], 12)),
]


@pytest.mark.parametrize(("package", "extra", "call"), CALLS)
def test_the_extra_is_named(
    package: str, extra: str, call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trees.conllu"
    path.write_text("1\tbark\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n", encoding="utf-8")
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # importing it fails
    with pytest.raises(ImportError) as caught:
        call(path)
    assert str(caught.value) == f"{package} is missing: pip install 'jat_graph[{extra}]'"


def test_no_package_of_an_extra_is_imported_without_its_name() -> None:
    for path in Path(jat_graph.__path__[0]).rglob("*.py"):
        text = re.sub(r"^if TYPE_CHECKING:(\n    .*)+", "", path.read_text("utf-8"), flags=re.M)
        assert not re.search(r"^ *(from|import) (conllu|scipy|sklearn|tabulate)\b", text, re.M)
