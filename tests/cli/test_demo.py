"""The demonstration on a tiny model: what it writes and shows, and what is learnt."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run


@pytest.mark.slow
def test_it_writes_and_shows_what_it_found(tmp_path: Path, run: Run) -> None:
    options = ("--model", "M", "--length", 40, "--length", 20, "--pairs", 2, "--steps", 4)
    output = run("demo", "--output", tmp_path / "demo", *options).output
    shown = " ".join(output.split())
    names = sorted(file.name for file in (tmp_path / "demo").iterdir())
    assert names == ["curves.png", "head.png", "lengths.png", "results.json"]
    content = json.loads((tmp_path / "demo" / "results.json").read_text(encoding="utf-8"))
    assert [point["tokens"] for point in content["lengths"]] == [20, 40]
    for point in content["lengths"]:  # too short for clusters
        assert point["share"] == 1 and point["token_cosine"] == pytest.approx(1)
        assert point["sdpa"] > 0 and f"{point['clusters']:.2f}" in shown
    assert content["jumps"]
    for jump in content["jumps"]:
        assert {jump["query"]["text"], jump["key"]["text"]} == {"computer", "pencil"}
    gains = [jump["gain"] for jump in content["jumps"]]
    assert gains == sorted(gains, reverse=True)
    for curve in content["curves"].values():
        assert [point["step"] for point in curve] == [1, 2, 3, 4]
        assert f"{curve[-1]['accuracy_2']:.1%}" in shown
    assert f"{content['chance']['2']:.1%}" in shown
    again = run("demo", "--output", tmp_path / "again", *options)
    other = run("demo", "--output", tmp_path / "other", *options, "--seed", 1)
    assert again.exit_code == other.exit_code == 0
    curves = [
        json.loads((tmp_path / name / "results.json").read_text(encoding="utf-8"))["curves"]
        for name in ("again", "other")
    ]
    assert content["curves"] == curves[0] != curves[1]


@pytest.mark.slow
def test_chance_is_the_share_of_the_commonest_value(tmp_path: Path, run: Run) -> None:
    options = ("--model", "M", "--length", 8, "--pairs", 5, "--steps", 1)
    run("demo", "--output", tmp_path, *options)
    content = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    for pairs in range(1, 6):
        drawn = 2 * pairs - 1  # values that are not one's own
        draws = np.random.default_rng(0).integers(8, size=(40_000, drawn))
        most = (draws[..., None] == np.arange(8)).sum(1).max(1)
        assert content["chance"][str(pairs)] == pytest.approx(most.mean() / drawn, abs=0.005)
