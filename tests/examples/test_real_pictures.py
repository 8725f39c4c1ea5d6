"""Pictures of what real decoders lose, save and find."""

import json
from pathlib import Path

import numpy as np
import pytest

from examples import real_pictures
from examples.real_decoders import BIN, DENSE, KEYS, TREE
from tests.examples.conftest import Call

WINDOW = "less:window:832"


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return path


def losses(folder: Path) -> Path:
    more = {DENSE: 0.0, TREE: 0.002, WINDOW: 0.1}
    return write(
        folder / "less.jsonl",
        [
            {"kind": kind, "text": 0, "length": 4096, "attention": name}
            | {"loss": [base + extra * number for number in range(8)]}
            for kind, base in (("qmsum", 3.0), ("python", 1.0))
            for name, extra in more.items()
        ],
    )


def times(folder: Path) -> Path:
    outcome = {"ours": {"median": 1.0}, "theirs": {"median": 2.0}, "ratio": {"median": 0.5}}
    rows = [
        {"what": what, "against": "the same on SDPA", "length": length, "outcome": outcome}
        for what in ("first token", "next token")
        for length in (2048, 4096)
    ]
    path = folder / "times.json"
    path.write_text(json.dumps({"version": 1, "benchmark": "pretrained", "rows": rows}), "utf-8")
    return path


def test_losses_are_drawn_over_the_share_of_keys_beside_times(call: Call, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in losses(tmp_path).read_text("utf-8").splitlines()]
    found = real_pictures.frame(json.loads(times(tmp_path).read_text("utf-8")))
    left, right = real_pictures.draw_losses(rows, found).axes
    lines = {str(line.get_label()): line for line in left.lines}
    assert [*lines] == ["window, first tokens", "tree (this library)"]
    share, more = lines["window, first tokens"].get_data()
    np.testing.assert_allclose(share, [min(1, KEYS / (BIN * n)) for n in (1, 3, 5, 7)])
    np.testing.assert_allclose(more, [0.05, 0.25, 0.45, 0.65])
    assert [tuple(line.get_ydata()) for line in right.lines] == [(2.0, 2.0), (1.0, 1.0)] * 2
    picture = tmp_path / "a.png"
    words = [real_pictures, "--plot", picture, "--losses", losses(tmp_path)]
    for more in ([], ["--times", times(tmp_path)]):
        call(*words, *more)
        assert picture.stat().st_size > 20_000


def test_answers_are_drawn_by_depth_and_length(call: Call, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"task": task, "length": length, "number": number, "depth": depth, "attention": name}
        | {"score": float(name == DENSE and task != "variables")}
        for task in ("keys, 4", "variables")
        for length in (1024, 2048)
        for number, depth in enumerate((0.25, 0.75))
        for name in (DENSE, TREE)
    ]
    dense, tree, _ = real_pictures.draw_answers(rows).axes
    for panel, score in ((dense, 1.0), (tree, 0.0)):
        (image,) = panel.images
        np.testing.assert_array_equal(image.get_array(), np.full((2, 2), score))
    assert [label.get_text() for label in dense.get_yticklabels()] == ["25%", "75%"]
    picture = tmp_path / "a.png"
    call(real_pictures, "--answers", write(tmp_path / "a.jsonl", rows), "--plot", picture)
    assert picture.stat().st_size > 20_000
    write(tmp_path / "a.jsonl", [row for row in rows if row["task"] == "variables"])
    with pytest.raises(SystemExit, match="answers must have tasks with a needle that all keys fin"):
        call(real_pictures, "--answers", tmp_path / "a.jsonl", "--plot", picture)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--plot a.png", "losses or answers must be a file, got neither"),
        ("--plot a.jpg", "plot must be a file name ending in .png, .svg or .pdf, got 'a.jpg'"),
    ],
)
def test_bad_input_is_one_line(words: str, message: str, call: Call) -> None:
    with pytest.raises(SystemExit, match=f"real_pictures: error: {message}"):
        call(real_pictures, *words.split())
