"""What a probe found in several models, held against each other."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from jat_graph.probes import Findings, compare_findings

LAYERS = (0, 3, 6)


def write(folder: Path, values: list[float | None], **told: object) -> Path:
    """The JSON of a probe with one value for each layer."""
    table = pd.DataFrame(
        {"model": "model", "layer": LAYERS, "words": 7, "UUAS": values, "DSpr": [0.5, 0.25, 0.75]}
    )
    own = {"seed": 0, **told}
    findings = Findings("tree", "", table, own, index=("model", "layer"))
    return next(path for path in findings.save(folder) if path.suffix == ".json")


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(2, 5))
def test_changes_are_those_of_paired_t_tests(
    tmp_path_factory: pytest.TempPathFactory, seed: int, arms: int, runs: int
) -> None:
    values = np.random.default_rng(seed).random((arms, runs, len(LAYERS))).round(6)
    home = tmp_path_factory.mktemp("runs")
    files = {
        f"arm {arm}": [
            write(home / f"{arm}-{run}", values[arm, run].tolist()) for run in range(runs)
        ]
        for arm in range(arms)
    }
    found = compare_findings(files)
    rows = found.table.set_index(["arm", "layer"])
    assert list(found.index) == ["model", "layer", "arm"]
    for arm in range(arms):
        for place, layer in enumerate(LAYERS):
            row, own, base = (
                rows.loc[(f"arm {arm}", layer)],
                values[arm, :, place],
                values[0, :, place],
            )
            assert row["mean"] == pytest.approx(own.mean())
            assert row["deviation"] == pytest.approx(own.std(ddof=1))
            if arm == 0:
                assert row[["change", "low", "high"]].isna().all()
                continue
            assert row["change"] == pytest.approx((own - base).mean())
            ends = ttest_rel(own, base).confidence_interval(0.95)
            assert row[["low", "high"]].tolist() == pytest.approx(list(ends))


def test_another_column_one_run_and_rows_without_a_value(tmp_path: Path) -> None:
    base, other = write(tmp_path / "a", [0.5, None, 0.25]), write(tmp_path / "b", [0.75, 1, None])
    found = compare_findings({"base": [base], "other": [other]})
    assert found.table["layer"].tolist() == [0, 0]
    assert found.table["change"].tolist()[1] == 0.25
    assert found.table[["deviation", "low", "high"]].isna().all(axis=None)
    assert "training run with" in found.caption
    depths = compare_findings({"base": [base], "other": [other]}, "DSpr")
    assert depths.table["layer"].tolist() == [0, 0, 3, 3, 6, 6]
    assert set(depths.table["change"].dropna()) == {0.0}
    assert [path.suffix for path in found.save(tmp_path / "out")] == [
        ".md",
        ".json",
        ".png",
        ".svg",
    ]


def test_layers_stay_whole_numbers_beside_a_row_without_one(tmp_path: Path) -> None:
    files = [write(tmp_path / name, [0.5, 0.25, 1.0]) for name in "ab"]
    for path in files:
        found = json.loads(path.read_text())
        found["rows"].append({"model": "line", "layer": None, "UUAS": 0.4})
        path.write_text(json.dumps(found))
    found = compare_findings({"base": files[:1], "other": files[1:]})
    assert found.table["layer"].map(str).tolist() == ["0", "0", "3", "3", "6", "6"]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one, two = (write(tmp_path / name, [0.5, 0.25, 1.0]) for name in "ab")
    later = write(tmp_path / "c", [0.5, 0.25, 1.0], seed=1)
    more = write(tmp_path / "d", [0.5, 0.25, 1.0], rank=4)
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps({"name": "atlas", "rows": [{"layer": 0}], "settings": {}}))
    nothing = write(tmp_path / "e", [None, None, None])
    for arms, value, said in (
        ({"base": [one]}, None, "arms must be two or more with equally many files, got base 1"),
        ({"base": [one], "x": [one, two]}, None, "equally many files, got base 1, x 2"),
        ({"base": [one], "x": [plain]}, None, r"plain.json must be a probe's"),
        ({"base": [one], "x": [later]}, None, r"must have seed 0, as the first file, got 1"),
        ({"base": [one], "x": [more]}, None, r"must have rank null, as the first file, got 4"),
        (
            {"base": [one], "x": [two]},
            "layer",
            "must be one of words, UUAS, DSpr, got 'layer'",
        ),
        ({"base": [one], "x": [nothing]}, "UUAS", "got"),
    ):
        with pytest.raises(ValueError, match=said):
            compare_findings(arms, value)
