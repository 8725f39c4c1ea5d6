"""Rows on disk: what was damaged is refused in one line."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from jat_graph.probes import storage
from jat_graph.probes.storage import stream_rows
from jat_graph.probes.words import WordReading


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A reader of three batches, with states that are known, and without a model."""
    monkeypatch.setattr(storage, "model_digest", lambda _: "digest")
    monkeypatch.setattr(storage, "find_attachment", lambda _: None)
    plan = SimpleNamespace(batches=[[0], [1], [2]], left_out=())

    def read(_: Any, first: int = 0) -> Any:
        for row in range(first, 3):
            yield [WordReading(row, torch.full((1, 2, 2), float(row + 1)), None)]

    return SimpleNamespace(plan=lambda _: plan, read=read, model=None, maps=None, batch_size=1)


def stream(folder: Path, reader: Any) -> storage.Rows:
    sentences = [["a", "b"]] * 3
    return stream_rows(folder, reader, sentences, rows_of, [2] * 3, (1, 2), {})


def rows_of(reading: WordReading) -> Any:
    return reading.states.numpy()


def test_rows_are_found_again(tmp_path: Path, reader: Any) -> None:
    found = stream(tmp_path, reader)
    assert np.array_equal(found.values[0, :, 0], [1, 1, 2, 2, 3, 3])
    (found.home / "progress.json").write_text('{"batches": 1}')
    assert np.array_equal(stream(tmp_path, reader).values, found.values)


@pytest.mark.parametrize(
    "damage",
    [
        lambda home: (home / "progress.json").write_text("{}"),
        lambda home: (home / "progress.json").write_text('{"batches": "x"}'),
        lambda home: (home / "progress.json").write_text('{"bat'),
        lambda home: (home / "rows.npy").unlink(),
        lambda home: (home / "rows.npy").write_bytes((home / "rows.npy").read_bytes()[:-4]),
        lambda home: np.save(home / "rows.npy", np.zeros((1, 5, 2), np.float32)),
    ],
)
def test_damage_is_one_line(damage: Callable[[Path], Any], tmp_path: Path, reader: Any) -> None:
    damage(stream(tmp_path, reader).home)
    with pytest.raises(ValueError, match=r"is damaged, delete it: |must be JSON: ") as caught:
        stream(tmp_path, reader)
    assert "\n" not in str(caught.value)
