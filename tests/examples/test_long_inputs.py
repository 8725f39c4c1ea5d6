"""The example that measures clusters over the length, on a tiny model."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from examples import long_inputs
from tests.examples.conftest import WORDS


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> None:
    file = folder / "text.txt"
    file.write_text(" ".join(WORDS[(3 * i + i // 7) % len(WORDS)] for i in range(300)))
    given = ["--file", str(file), "--texts", "2", "--rounds", "1", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", ["long_inputs", *given, "--lengths", "24", "96", *words])
    long_inputs.main()


def test_each_length_is_measured_with_all_settings(
    tiny_model: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def shape(build: Any, *arguments: Any, device: str) -> int:
        return int(build(*arguments)().size(1))  # where a peak in a process of its own would be

    monkeypatch.setattr(long_inputs, "peak", shape)
    file, picture, settings = (
        tmp_path / "a.json",
        tmp_path / "a.png",
        "keys=4,size=2,segment=16,dense_below=0",
    )
    words = ["--settings", "default", settings, "--json", str(file), "--plot", str(picture)]
    run(monkeypatch, tmp_path, "--model", tiny_model, *words)
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    lengths = ["24", "24", "96", "96"]
    assert [[line[0][2:], line[1]] for line in lines] == [
        [length, name] for length, name in zip(lengths, ["default", settings] * 2, strict=True)
    ]
    points = json.loads(file.read_text("utf-8"))["points"]
    for point, length in zip(points, lengths, strict=True):
        assert point["sdpa_bytes"] == point["clusters_bytes"] == point["tokens"] == int(length)
        assert point["sdpa"] > 0 and point["clusters"] > 0 and point["ratio"] > 0
        clustered = point["settings"] != "default"  # the others are too short
        assert (point["share"] < 1, point["token_cosine"] < 1 - 1e-6) == (clustered, clustered)
        assert 0.9 < point["embedding_cosine"] < 1 + 1e-9
    assert imread(picture).ndim == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--texts", "9"], "file must have 864 tokens, got"),
        (["--settings", "key=4"], "unknown config field 'key'"),
        (["--settings", "keys"], "settings must be NAME=VALUE"),
        (["--plot", "lengths.jpg"], "ending in .png"),
        (["--file", "none.txt"], "none.txt must be a file, got none"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match=f"^long_inputs: error: .*{message}") as caught:
        run(monkeypatch, tmp_path, "--model", tiny_model, *words)
    assert "\n" not in str(caught.value)
