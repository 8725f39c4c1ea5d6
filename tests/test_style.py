"""The rules of this project that no linter knows, as tests over the source."""

import ast
import re
import statistics
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "jat_graph"
ORACLES = ROOT / "tests" / "oracles"

# A part may import those of earlier lines. Parts that share a line know nothing of each other.
LAYERS = (
    ("core",),
    ("clusters",),
    ("jumps",),
    ("graphs", "operators", "patterns"),  # the last two are where people import names of jumps
    ("transforms",),
    ("nn",),
    ("hf",),
    ("training",),
    ("looking.directions", "looking.inspection"),
    ("looking.data", "looking.viz"),
    ("looking.viewer",),
    ("looking.probes",),
    ("looking.cli",),
    ("data", "inspection", "probes", "viewer", "viz"),  # where people import names of looking
)
RANK = {module: rank for rank, modules in enumerate(LAYERS) for module in modules}

# Lines of a function's body, and of a file without docstrings.
MEDIAN_BODY, NINTH_DECILE_BODY, FILE = (6, 12), 40, 250
ONE_LINE = 0.22  # of the functions at most: a helper that says less than its line goes back

# Unlike things in one assignment, a, b = x, f(y), and calls with **: not less, but denser.
PACKED, SPREAD = 121, 138
WORDS = 50_000  # of README.md and docs

# Lines of Python a folder may have, docstrings and all; only an issue raises one.
BUDGET = {
    "jat_graph/clusters": 4_264,
    "jat_graph/core": 1_547,
    "jat_graph/graphs": 518,
    "jat_graph/hf": 3_347,
    "jat_graph/jumps": 7_367,
    "jat_graph/looking": 6_412,
    "jat_graph/nn": 770,
    "jat_graph/testing": 169,
    "jat_graph/training": 318,
    "jat_graph": 24_930,
    "examples": 10_656,
    "models": 742,
    "tests": 29_629,
}


class Function(NamedTuple):
    """A function or method, and where it stands."""

    path: Path
    owner: ast.ClassDef | None
    node: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.node.lineno} {self.node.name}"


def _files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _part(names: Sequence[str]) -> str:
    """Name the part of jat_graph that a module belongs to, by the names below jat_graph."""
    return ".".join(names[: 1 + (names[0] == "looking")])


def _module(path: Path) -> str:
    """Name the part of jat_graph that a file belongs to."""
    return _part(path.relative_to(PACKAGE).with_suffix("").parts)


def _imported_names(path: Path) -> Iterator[str]:
    """Yield the absolute names that a file imports, anywhere in it."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            if base in ("jat_graph", "jat_graph.looking"):
                yield from (f"{base}.{alias.name}" for alias in node.names)
            else:
                yield base
        elif isinstance(node, ast.Constant) and str(node.value) in FILES:
            yield node.value  # what is imported by a string


def _imports_of_ours(path: Path) -> set[str]:
    """Name the modules directly under jat_graph that a file imports, its own left out."""
    names = (name.split(".") for name in _imported_names(path))
    found = {_part(parts[1:]) for parts in names if parts[0] == "jat_graph" and len(parts) > 1}
    return found - {_module(path), "__version__"}


FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in _files()
}


def _functions() -> Iterator[Function]:
    """Yield all functions, those inside others too."""
    for path in _files():
        for outer in ast.walk(_tree(path)):
            for node in ast.iter_child_nodes(outer):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _overload(node):
                    yield Function(path, outer if isinstance(outer, ast.ClassDef) else None, node)


def _overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether a function only says types of another one."""
    return any(getattr(mark, "id", "") == "overload" for mark in node.decorator_list)


def _exports(path: Path) -> list[str]:
    """List what ``__all__`` of a file names, or of the stub beside it."""
    stub = path.with_suffix(".pyi")
    for node in _tree(stub if stub.exists() else path).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


@cache
def _exported() -> frozenset[str]:
    """Name all that any ``__all__`` names."""
    return frozenset(name for path in _files() for name in _exports(path))


@cache
def _exporters() -> dict[str, set[Path]]:
    """Say from which files each name is imported by those that export it."""
    found: dict[str, set[Path]] = {}
    for path in _files():
        stub, names = path.with_suffix(".pyi"), set(_exports(path))
        for node in ast.walk(_tree(stub if stub.exists() else path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                package = ".".join(path.relative_to(ROOT).with_suffix("").parts[:-1])
                module = f"{package}.{node.module}" if node.level else node.module
                for name in {alias.name for alias in node.names} & names:
                    found.setdefault(name, set()).add(FILES.get(module, path))
    return found


def _public_functions() -> list[Function]:
    """List the exported functions and the methods of the exported classes."""
    found = []
    for function in _functions():
        top = function.owner or function.node
        own = function.path in _exporters().get(top.name, {function.path})
        at_top = top in _tree(function.path).body and own
        if at_top and top.name in _exported() and not function.node.name.startswith("_"):
            found.append(function)
    return found


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a body, its docstring left out."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (node.end_lineno or 0) - body[0].lineno + 1 if body else 0


# --- imports -------------------------------------------------------------------------------------


def test_imports_point_one_way() -> None:
    assert len(_files()) > 20
    for path in _files():
        module, others = _module(path), _imports_of_ours(path)
        tops = {name.split(".")[0] for name in _imported_names(path)}
        assert not tops & {"benchmarks", "docs", "examples", "models", "tests"}, path
        if module in ("__init__", "__main__", "looking.__init__"):
            continue
        if module == "testing":  # which knows operators only, and which nobody knows
            assert others <= {"operators"}, path
            continue
        for other in (module, *others):
            assert other in RANK, f"give {other} its line in LAYERS of {Path(__file__).name}"
        above = [other for other in others if RANK[other] >= RANK[module]]
        assert not above, f"{path.name} of {module} imports {above}, which are above"


def _imported_files(path: Path) -> Iterator[Path]:
    """Yield the files of ours that a file imports, anywhere in it: for types, too, and late."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # A module of a package, or else a name that the module or package itself gives.
            names = [_module_of(f"{node.module}.{alias.name}") for alias in node.names]
        else:
            continue
        yield from (FILES[name] for name in names if name in FILES and FILES[name] != path)


def _module_of(name: str) -> str:
    return name if name in FILES else name.rpartition(".")[0]


def test_no_imports_go_round_in_a_circle() -> None:
    order = TopologicalSorter({path: set(_imported_files(path)) for path in _files()})
    try:
        order.prepare()
    except CycleError as error:
        circle = (str(path.relative_to(PACKAGE)) for path in reversed(error.args[1]))
        pytest.fail(f"imports go round in a circle: {' → '.join(circle)}")


def test_the_oracles_import_nothing_of_ours() -> None:
    oracles = [path for path in ORACLES.glob("*.py") if not path.name.startswith("test_")]
    assert len(oracles) > 10
    for path in oracles:
        names = {name for name in _imported_names(path) if not name.startswith("tests.oracles")}
        tops = {name.split(".")[0] for name in names}
        assert tops <= {"__future__", "collections", "math", "torch", "typing"}, path


# --- length --------------------------------------------------------------------------------------


def test_functions_are_as_long_as_their_thought() -> None:
    lengths = sorted(_body_lines(function.node) for function in _functions())
    least, most = MEDIAN_BODY
    assert least <= statistics.median(lengths) <= most
    assert statistics.quantiles(lengths, n=10)[-1] <= NINTH_DECILE_BODY
    assert sum(length <= 1 for length in lengths) / len(lengths) <= ONE_LINE


def _parts(node: ast.AST) -> str:
    """Write down of what kinds an expression is made, its names left out."""
    parts = (_parts(part) for part in ast.iter_child_nodes(node))
    return f"{type(node).__name__}({''.join(parts)})"


def test_a_statement_says_one_thing() -> None:
    packed = spread = 0
    for path in _files():
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                values = node.value.elts if isinstance(node.value, ast.Tuple) else []
                packed += len(set(map(_parts, values))) > 1
            if isinstance(node, ast.Call):
                spread += any(keyword.arg is None for keyword in node.keywords)
    assert packed <= PACKED and spread <= SPREAD, (packed, spread)


def test_pages_are_short() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pages = [page for page in pages if "_build" not in page.parts]
    assert sum(len(path.read_text("utf-8").split()) for path in pages) <= WORDS


@pytest.mark.parametrize("folder", BUDGET)
def test_a_folder_keeps_to_its_budget(folder: str) -> None:
    files = [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.pyi")]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) <= BUDGET[folder]


# Whose tests speak to inner modules: loops, operators, and what these are made of.
INNER = ("adjacency", "clusters", "kernels", "operators")
# Whose modules tests may import.
OPEN = (PACKAGE, PACKAGE / "core", PACKAGE / "jumps", PACKAGE / "looking")
TESTS = sorted((ROOT / "tests").rglob("*.py"))


@pytest.mark.slow
def test_tests_speak_to_public_names() -> None:
    paths = [path for path in TESTS if path.parent.name not in INNER and path != Path(__file__)]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("jat_graph."):
                _check_import_of_a_test(path, node)


def _check_import_of_a_test(path: Path, node: ast.ImportFrom) -> None:
    imported = ROOT / str(node.module).replace(".", "/")
    if not imported.is_dir():
        is_entry = node.module == "jat_graph.looking.cli.app"
        assert is_entry or imported.parent in OPEN, f"{path}: {node.module} is inside"
        return
    for name in node.names:
        is_module = (imported / f"{name.name}.py").exists()
        assert not is_module or (imported.name, name.name) == ("cli", "app"), f"{path}: {name.name}"


def _code_lines(path: Path) -> int:
    """Count the lines of a file, its docstrings, comments and empty lines left out."""
    described = {
        line
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return sum(
        number not in described and bool(line.strip()) and not line.lstrip().startswith("#")
        for number, line in lines
    )


def test_files_are_short() -> None:
    lines = {path: _code_lines(path) for path in _files()}
    assert not {str(path): count for path, count in lines.items() if count > FILE}


# --- docstrings ----------------------------------------------------------------------------------


def _own_arguments(function: Function) -> list[str]:
    arguments = function.node.args
    named = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    static = any(getattr(d, "id", "") == "staticmethod" for d in function.node.decorator_list)
    return named[1:] if function.owner is not None and not static else named


def _returns_something(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    returned = node.returns
    if isinstance(returned, ast.Constant):
        return returned.value is not None
    return getattr(returned, "id", "") not in ("NoReturn", "Never")


def _raises(node: ast.AST) -> bool:
    """Tell whether a function's own body raises an error of its choice."""
    return any(
        isinstance(inner, ast.Raise) and "NotImplementedError" not in ast.dump(inner)
        for inner in ast.walk(node)
    )


def _takes_tensors(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("'Tensor'" in ast.dump(a) for a in (node.args, node.returns) if a is not None)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.dump(decorator) for decorator in node.decorator_list)


def _overrides(function: Function) -> bool:
    """Tell whether a method fills in what a base class has described."""
    return function.owner is not None and bool(function.owner.bases)


def _faults(function: Function) -> list[str]:
    """List what a public function's docstring lacks."""
    node, text = function.node, ast.get_docstring(function.node)
    if text is None:
        return [] if _overrides(function) else ["a docstring"]
    if "\n" not in text and (_overrides(function) or not _own_arguments(function)):
        return [] if not _raises(node) else ["Raises"]  # one line says what comes back
    faults = [f"{name} under Args" for name in _missing_arguments(function, text)]
    if _returns_something(node) and not _is_property(node):
        faults += [] if _has(text, "Returns:", "Yields:") else ["Returns"]
    if _raises(node) and not _has(text, "Raises:"):
        faults.append("Raises")
    if function.owner is None and _takes_tensors(node):
        faults += [] if re.search(r"\nShapes:\n|\[[A-Z][^\]]*\]", text) else ["Shapes"]
        is_ours = "testing" not in function.place
        faults += ["Reference"] if is_ours and not _has(text, "Reference:") else []
    return faults


def _missing_arguments(function: Function, text: str) -> list[str]:
    return [
        name
        for name in _own_arguments(function)
        if not re.search(rf"^\s+(\w+, )*\*?{name}(, \w+)*( \(.*\))?:", text, re.MULTILINE)
    ]


def _has(text: str, *titles: str) -> bool:
    return any(f"\n{title}\n" in text for title in titles)


def test_public_docstrings_have_their_fields() -> None:
    assert len(_public_functions()) > 50
    lacking = [
        f"{function.place}: {', '.join(faults)}"
        for function in _public_functions()
        if (faults := _faults(function))
    ]
    assert not lacking, "\n".join(lacking)


def test_every_public_name_is_in_the_docs() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    whole = set(re.findall(r"^\.\. automodule:: ([\w.]+)\n   :members:", pages, re.MULTILINE))
    single = set(re.findall(r"^\.\. auto\w+:: [\w.]+\.(\w+)$", pages, re.MULTILINE))
    missing = []
    for path in _files():
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if dotted not in whole:
            missing += [f"{dotted}.{name}" for name in _exports(path) if name not in single]
    assert not missing, "\n".join(missing)
