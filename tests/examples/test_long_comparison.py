import json
import sys
from pathlib import Path

import pytest

from examples import long_comparison
from tests.training.conftest import tiny_model

__all__ = ["tiny_model"]


def test_it_compares_short_and_long_arms(
    tmp_path: Path, data_dir: Path, tiny_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["long_comparison", "--model", tiny_model, "--data-dir", str(data_dir)]
    words += ["--output", str(tmp_path), "--seeds", "1", "--short", "32", "--long", "96"]
    words += ["--pattern", "window:16+global:1", "--epochs", "1"]
    words += ["--max-train-samples", "4", "--max-eval-samples", "4"]
    monkeypatch.setattr(sys, "argv", words)
    long_comparison.main()
    table = (tmp_path / "comparison.md").read_text(encoding="utf-8")
    assert all(f"| {arm} " in table for arm in ("base", "pattern", "jump"))
    assert "jump against pattern" in table
    arms = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["arms"]
    assert arms["base"]["runs"][0]["options"]["max_length"] == 32
    assert arms["jump"]["runs"][0]["options"]["max_length"] == 96
    assert arms["jump"]["config"]["pattern"] == "window:16+global:1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data-dir", "nowhere"], "nowhere"),
        (["--task", "brwn"], "task must be one of"),
        (["--pattern", "widow:3"], "widow"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    tiny_model: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = ["--model", tiny_model, "--data-dir", str(tmp_path), "--output", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["long_comparison", *given, *words])
    with pytest.raises(SystemExit, match=f"^long_comparison: error: .*{message}") as caught:
        long_comparison.main()
    assert "\n" not in str(caught.value)
