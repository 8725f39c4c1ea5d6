"""The demonstration on a tiny model: what it writes and shows."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.slow
def test_it_writes_and_shows_what_it_found(tmp_path: Path, run: Run) -> None:
    options = ("--model", "M", "--length", 40, "--length", 20)
    output = run("demo", "--output", tmp_path / "demo", *options).output
    shown = " ".join(output.split())
    names = sorted(file.name for file in (tmp_path / "demo").iterdir())
    assert names == ["head.png", "lengths.png", "results.json"]
    content = json.loads((tmp_path / "demo" / "results.json").read_text(encoding="utf-8"))
    assert [point["tokens"] for point in content["lengths"]] == [20, 40]
    for point in content["lengths"]:  # too short for clusters
        assert point["share"] == 1 and point["token_cosine"] == pytest.approx(1)
        assert point["sdpa"] > 0 and f"{point['clusters']:.2f}" in shown
    jumps = [jump for head in content["pair"]["heads"] for jump in head["jumps"]]
    assert jumps
    for jump in jumps:
        assert (jump["query"]["text"], jump["key"]["text"]) == ("pencil", "computer")
    best = max(jumps, key=lambda jump: (jump["gain"], jump["weight"]))
    assert f"{100 * best['gain']:+.1f}" in shown.partition("gains most from pencil:")[2]
