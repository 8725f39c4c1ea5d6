"""What probes write."""

import json
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from jat_graph.probes import Findings


def test_tables_captions_and_pictures_are_written(tmp_path: Path) -> None:
    table = pd.DataFrame({"layer": [0, 1], "accuracy": [0.5, None]})
    figure = Figure(figsize=(1, 1))
    found = Findings("heads", "What heads find.", table, {"seed": 0}, {"heads": figure}, ("layer",))
    files = found.save(tmp_path / "new" / "folder")
    assert [path.name for path in files] == ["heads.md", "heads.json", "heads.png", "heads.svg"]
    assert all(path.stat().st_size for path in files)
    content = json.loads(files[1].read_text())
    assert content == {
        "name": "heads",
        "caption": "What heads find.",
        "settings": {"seed": 0},
        "index": ["layer"],
        "rows": [{"layer": 0, "accuracy": 0.5}, {"layer": 1, "accuracy": None}],
    }
    lines = files[0].read_text().splitlines()
    assert lines[0] == "What heads find."
    assert lines[2].split() == ["|", "layer", "|", "accuracy", "|"]
    assert [line.replace("|", " ").split() for line in lines[-2:]] == [["0", "0.500"], ["1"]]


def test_intervals_stand_beside_their_values() -> None:
    nothing = float("nan")
    table = pd.DataFrame(
        {
            "layer": [0, 1],
            "F1": [0.25, 0.5],
            "low": [0.125, nothing],
            "high": [0.375, nothing],
            "gain": [1.0, -1.0],
            "gain low": [0.0, -2.0],
            "gain high": [2.0, 0.0],
            "seeds": [3, 3],
        }
    )
    found = Findings("senses", "", table, {})
    assert found.cells(digits=2).to_dict("list") == {
        "layer": ["0", "1"],
        "F1": ["0.25 (0.12 to 0.38)", "0.50"],
        "gain": ["1.00 (0.00 to 2.00)", "-1.00 (-2.00 to 0.00)"],
        "seeds": ["3", "3"],
    }
    alone = found.cells(digits=1, intervals=False)
    assert alone.to_dict("list") == {
        "layer": ["0", "1"],
        "F1": ["0.2", "0.5"],
        "gain": ["1.0", "-1.0"],
        "seeds": ["3", "3"],
    }
