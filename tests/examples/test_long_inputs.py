"""The example that measures clusters over the length, on a tiny model."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from examples import long_inputs
from tests.examples.conftest import WORDS, Call


def test_each_length_is_measured_with_all_settings(
    tiny_model: str,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def shape(build: Any, *arguments: Any, device: str) -> int:
        return int(build(*arguments)().size(1))  # where a peak in a process of its own would be

    def record(point: dict[str, Any]) -> str:
        points.append(point)
        return row(point)

    points, row = [], long_inputs.row
    monkeypatch.setattr(long_inputs, "row", record)
    monkeypatch.setattr(long_inputs, "peak", shape)
    text, picture = tmp_path / "text.txt", tmp_path / "a.png"
    text.write_text(" ".join(WORDS[(3 * i + i // 7) % len(WORDS)] for i in range(300)))
    settings = "keys=4,size=2,segment=16,dense_below=0"
    words = f"--model {tiny_model} --file {text} --plot {picture} --texts 2 --rounds 1"
    words += f" --threads 1 --lengths 24 96 --settings default {settings}"
    call(long_inputs, *words.split())
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    lengths = ["24", "24", "96", "96"]
    assert [[line[0][2:], line[1]] for line in lines] == [
        [length, name] for length, name in zip(lengths, ["default", settings] * 2, strict=True)
    ]
    for point, length in zip(points, lengths, strict=True):
        assert point["sdpa_bytes"] == point["clusters_bytes"] == point["tokens"] == int(length)
        assert point["sdpa"] > 0 and point["clusters"] > 0 and point["ratio"] > 0
        clustered = point["settings"] != "default"  # the others are too short
        assert (point["share"] < 1, point["token_cosine"] < 1 - 1e-6) == (clustered, clustered)
        assert 0.9 < point["embedding_cosine"] < 1 + 1e-9
    assert imread(picture).ndim == 3
