"""What pyright knows of the names that a user imports; mypy reads the rest."""

# ruff: noqa: D103

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

# Their bases and some of their arguments are of PyG, which says nothing of its types.
OF_PYG = (
    "looking.data.attention_graphs.AttentionGraphs",
    "graphs.pairs.StoneHypergraph",
    "transforms.AttentionToGraph",
    "nn.convs.ClusterConv",
    "nn.convs.JumpConv",
    "nn.convs.OneGraphConv",
    "nn.convs.StoneConv",
    "nn.convs.node_means",
)
# An attribute has the type of what it is set to; no more is "partially unknown" without Unknown.
INFERRED = r"Type is missing type annotation|Ambiguous base class|.* is partially unknown|No docstr"


def pyright(folder: Path, *arguments: str) -> Any:
    """Run pyright with the packages of this environment, and return its report."""
    paths = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = [BIN / "basedpyright", "--outputjson", *arguments]
    run = subprocess.run(command, capture_output=True, cwd=folder, env=os.environ | paths)
    return json.loads(run.stdout)


def test_the_type_of_each_public_name_is_known() -> None:
    report = pyright(ROOT, "--verifytypes", "jat_graph", "--ignoreexternal")["typeCompleteness"]
    symbols = [symbol for symbol in report["symbols"] if symbol["isExported"]]
    unknown = [
        f"{symbol['name']}: {found['message']}"
        for symbol in symbols
        for found in symbol["diagnostics"]
        if not re.match(INFERRED, found["message"]) or "Unknown" in found["message"]
    ]
    ours = [one for one in unknown if not one.startswith(tuple(f"jat_graph.{o}" for o in OF_PYG))]
    assert not ours, "\n".join(ours)
    assert len(unknown) > 5 and len(symbols) > 2700  # PyG was found, and so were our names


def test_what_the_readme_and_the_cheatsheet_show_has_no_wrong_types(tmp_path: Path) -> None:
    for page in ("README.md", "docs/cheatsheet.md"):
        blocks = re.findall(
            r"^```python\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.M | re.S
        )
        (tmp_path / Path(page).with_suffix(".py").name).write_text("\n".join(blocks), "utf-8")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    report = pyright(tmp_path)
    assert report["summary"]["filesAnalyzed"] == 2
    assert not [f"{one['file']}: {one['message']}" for one in report["generalDiagnostics"]]
