"""What probes write."""

import json
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from jat_graph.probes import Findings


def test_tables_captions_and_pictures_are_written(tmp_path: Path) -> None:
    table = pd.DataFrame({"layer": [0, 1], "F1": [0.5, None], "low": [0.25, None]})
    table["high"] = [0.75, None]
    figure = Figure(figsize=(1, 1))
    found = Findings("heads", "What heads find.", table, {"seed": 0}, {"heads": figure})
    files = found.save(tmp_path / "new" / "folder")
    assert [path.name for path in files] == ["heads.md", "heads.json", "heads.png", "heads.svg"]
    assert all(path.stat().st_size for path in files)
    content = json.loads(files[1].read_text())
    assert content["rows"][0] == {"layer": 0, "F1": 0.5, "low": 0.25, "high": 0.75}
    assert content["rows"][1] == {"layer": 1, "F1": None, "low": None, "high": None}
    assert content["settings"] == {"seed": 0}
    lines = files[0].read_text().splitlines()
    assert lines[0] == "What heads find."
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:]]
    assert cells == [["0", "0.500 (0.250 to 0.750)"], ["1", ""]]
