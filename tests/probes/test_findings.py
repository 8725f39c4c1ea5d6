"""What probes write, intervals over sentences, and models held against each other."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy.stats import ttest_rel

from jat_graph.probes import Findings, compare_findings

LAYERS = (0, 3, 6)


def test_tables_captions_and_pictures_are_written(tmp_path: Path) -> None:
    table = pd.DataFrame({"layer": [0, 1], "F1": [0.5, None], "low": [0.25, None]})
    table["high"] = [0.75, None]
    figure = Figure(figsize=(1, 1))
    found = Findings("heads", "What heads find.", table, {"seed": 0}, {"heads": figure}, ("layer",))
    files = found.save(tmp_path / "new" / "folder")
    assert [path.name for path in files] == ["heads.md", "heads.json", "heads.png", "heads.svg"]
    assert all(path.stat().st_size for path in files)
    content = json.loads(files[1].read_text())
    assert content["rows"][0] == {"layer": 0, "F1": 0.5, "low": 0.25, "high": 0.75}
    assert content["rows"][1] == {"layer": 1, "F1": None, "low": None, "high": None}
    assert (content["settings"], content["index"]) == ({"seed": 0}, ["layer"])
    lines = files[0].read_text().splitlines()
    assert lines[0] == "What heads find."
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:]]
    assert cells == [["0", "0.500 (0.250 to 0.750)"], ["1", ""]]


def write(folder: Path, values: list[float | None], **told: object) -> Path:
    """The JSON of a probe with one value for each layer."""
    table = pd.DataFrame(
        {"model": "model", "layer": LAYERS, "words": 7, "UUAS": values, "DSpr": [0.5, 0.25, 0.75]}
    )
    own = {"seed": 0, **told}
    findings = Findings("tree", "", table, own, index=("model", "layer"))
    return next(path for path in findings.save(folder) if path.suffix == ".json")


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.integers(2, 5))
@example(0, 12, 2)  # more than there are colours
def test_changes_are_those_of_paired_t_tests(
    tmp_path_factory: pytest.TempPathFactory, seed: int, variants: int, runs: int
) -> None:
    values = np.random.default_rng(seed).random((variants, runs, len(LAYERS))).round(6)
    home = tmp_path_factory.mktemp("runs")
    files = {
        f"v{number}": [
            write(home / f"{number}-{run}", values[number, run].tolist()) for run in range(runs)
        ]
        for number in range(variants)
    }
    found = compare_findings(files)
    rows = found.table.set_index(["variant", "layer"])
    assert list(found.index) == ["model", "layer", "variant"]
    for number in range(variants):
        for index, layer in enumerate(LAYERS):
            row = rows.loc[(f"v{number}", layer)]
            own, base = values[number, :, index], values[0, :, index]
            assert row["mean"] == pytest.approx(own.mean())
            assert row["deviation"] == pytest.approx(own.std(ddof=1))
            if number == 0:
                assert row[["change", "low", "high"]].isna().all()
                continue
            assert row["change"] == pytest.approx((own - base).mean())
            ends = ttest_rel(own, base).confidence_interval(0.95)
            assert row[["low", "high"]].tolist() == pytest.approx(list(ends))


def test_another_column_one_run_and_rows_without_a_value(tmp_path: Path) -> None:
    base, other = write(tmp_path / "a", [0.5, None, 0.25]), write(tmp_path / "b", [0.75, 1, None])
    for path in (base, other):  # words in a line are of no layer: layers stay whole numbers
        content = json.loads(path.read_text())
        content["rows"].append({"model": "line", "layer": None, "UUAS": 0.4})
        path.write_text(json.dumps(content))
    found = compare_findings({"base": [base], "other": [other]})
    assert found.table["layer"].map(str).tolist() == ["0", "0"]
    assert found.table["change"].tolist()[1] == 0.25
    assert found.table[["deviation", "low", "high"]].isna().all(axis=None)
    depths = compare_findings({"base": [base], "other": [other]}, "DSpr")
    assert depths.table["layer"].tolist() == [0, 0, 3, 3, 6, 6]
    assert set(depths.table["change"].dropna()) == {0.0}
    assert len(found.save(tmp_path / "out")) == 4


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one, two = (write(tmp_path / name, [0.5, 0.25, 1.0]) for name in "ab")
    later = write(tmp_path / "c", [0.5, 0.25, 1.0], seed=1)
    more = write(tmp_path / "d", [0.5, 0.25, 1.0], rank=4)
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps({"name": "tree", "rows": [{"layer": 0}], "settings": {}}))
    nothing = write(tmp_path / "e", [None, None, None])
    for variants, value, said in (
        ({"base": [one]}, None, "variants must be two or more"),
        ({"base": [one], "x": [one, two]}, None, "equally many files, got base 1, x 2"),
        ({"base": [one], "x": [plain]}, None, r"plain.json must be a probe's"),
        ({"base": [one], "x": [later]}, None, r"must have seed 0, as the first file, got 1"),
        ({"base": [one], "x": [more]}, None, r"must have rank null, as the first file, got 4"),
        ({"base": [one], "x": [two]}, "layer", "value must be one of"),
        ({"base": [one], "x": [nothing]}, "UUAS", "got"),
    ):
        with pytest.raises(ValueError, match=said):
            compare_findings(variants, value)
