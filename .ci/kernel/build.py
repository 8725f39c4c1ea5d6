"""Write the kernels as a repository of Hugging Face's Hub: ``python .ci/kernel/build.py FOLDER``.

Modules of jat_graph.clusters are copied, with imports that are relative. They import themselves,
torch and Triton alone, and each build names its operators after its contents, as the Hub asks.
"""

import ast
import hashlib
import json
import re
import shutil
import sys
from pathlib import Path

from jat_graph.clusters.settings import MEASURED, ON_CUDA

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "jat_graph" / "clusters"
NAME = "clustered_attention"
MODULES = "attend choice draws naive operator tree".split()
ALLOWED = {*sys.stdlib_module_names, "torch", "triton"}
BACKENDS = "cpu", "cuda"


def main(folder: Path) -> None:
    """Write sources, builds for a CPU and for CUDA, tests and the card."""
    if folder.exists():
        sys.exit(f"build: error: {folder} must not exist yet")
    files = {name: (HERE / name).read_text("utf-8") for name in ("__init__.py", "compiling.py")}
    defaults = f"MEASURED = {MEASURED!r}\nON_CUDA = {ON_CUDA!r}\n"
    files["defaults.py"] = (
        f'"""As measured, and as counted."""\n\nfrom .choice import Rule\n\n{defaults}'
    )
    for path in [*(SOURCE / f"{name}.py" for name in MODULES), *(SOURCE / "gpu").glob("*.py")]:
        name = path.relative_to(SOURCE).as_posix()
        files[name] = relative(path.read_text("utf-8"), "." * (1 + name.count("/")))
    digest = hashlib.sha256("".join(files[name] for name in sorted(files)).encode()).hexdigest()[
        :10
    ]
    files["operator.py"] = files["operator.py"].replace('"jat_graph::', f'"{NAME}_{digest}::')
    for name, text in files.items():
        check(name, text)
    for place in ("torch-ext", *(f"build/torch-{backend}" for backend in BACKENDS)):
        for name, text in files.items():
            target = folder / place / NAME / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
    for backend in BACKENDS:
        data = {"id": f"_{NAME}_{backend}_{digest}", "name": NAME.replace("_", "-"), "version": 1}
        data |= {"license": "MIT", "python-depends": [], "backend": {"type": backend}}
        path = folder / f"build/torch-{backend}/metadata.json"
        path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")
    (folder / "tests").mkdir()
    for name in ("build.toml", "CARD.md", "test_clustered_attention.py"):
        shutil.copy(HERE / name, folder / "tests" if name.endswith(".py") else folder)


def relative(text: str, dots: str) -> str:
    """Return a module's text with imports from the package that the kernel is."""
    text = text.replace("from jat_graph.core.compiling import", f"from {dots}compiling import")
    text = re.sub(r"from jat_graph\.clusters\.(\S+) import", rf"from {dots}\1 import", text)
    text = text.replace("from jat_graph.clusters import", f"from {dots} import")
    return re.sub(
        r'import_module\("jat_graph\.clusters\.(\S+)"\)', r'import_module(".\1", __package__)', text
    )


def check(name: str, text: str) -> None:
    """Refuse imports of other packages; what is for numba is never reached."""
    for node in ast.walk(ast.parse(text)):
        names = [x.name for x in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
        if others := {x.partition(".")[0] for x in names} - ALLOWED:
            sys.exit(
                f"build: error: {name} must import itself, torch and triton alone, got {others}"
            )
    if "jat_graph." in text.replace(":mod:`jat_graph.", "").replace(":func:`jat_graph.", ""):
        sys.exit(f"build: error: {name} speaks of jat_graph")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("build: error: wanted a folder, as python .ci/kernel/build.py FOLDER")
    main(Path(sys.argv[1]))
