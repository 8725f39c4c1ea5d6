"""What probes write."""

import json
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from jat_graph.probes import Findings


def test_tables_captions_and_pictures_are_written(tmp_path: Path) -> None:
    table = pd.DataFrame({"layer": [0, 1], "accuracy": [0.5, None]})
    figure = Figure(figsize=(1, 1))
    found = Findings("heads", "What heads find.", table, {"seed": 0}, {"heads": figure})
    files = found.save(tmp_path / "new" / "folder")
    assert [path.name for path in files] == ["heads.md", "heads.json", "heads.png", "heads.svg"]
    assert all(path.stat().st_size for path in files)
    content = json.loads(files[1].read_text())
    assert content == {
        "name": "heads",
        "caption": "What heads find.",
        "settings": {"seed": 0},
        "rows": [{"layer": 0, "accuracy": 0.5}, {"layer": 1, "accuracy": None}],
    }
    lines = files[0].read_text().splitlines()
    assert lines[0] == "What heads find."
    assert lines[2].split() == ["|", "layer", "|", "accuracy", "|"]
    assert [line.replace("|", " ").split() for line in lines[-2:]] == [["0", "0.500"], ["1"]]
