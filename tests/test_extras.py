"""A package that only an extra brings is named together with the extra, wherever it is missing."""

import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import jat_graph
from jat_graph.probes import Findings, read_treebank
from jat_graph.viz import draw_patterns

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
