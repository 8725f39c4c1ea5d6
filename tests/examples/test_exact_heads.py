"""The example that keeps heads exact, on a tiny model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from transformers import AutoModel

import jat_graph
from examples import exact_heads
from examples.exact_heads import EXACT, QUERIES, SHARES, TOLERANCES, keep_exact, read_few
from tests.examples.conftest import WORDS, Call


@pytest.fixture
def run(tmp_path: Path, tiny_model: str, call: Call) -> Callable[..., Path]:
    """Return what runs the command on the tiny model."""

    def command(*words: object) -> Path:
        text, output = tmp_path / "text.txt", tmp_path / "rows.jsonl"
        text.write_text(" ".join(WORDS[(3 * i + i // 7) % len(WORDS)] for i in range(200)))
        given = ["--model", tiny_model, "--file", text, "--output", output, "--length", "64"]
        call(exact_heads, *given, "--texts", "1", "--seeds", "1", *words)
        return output

    return command


@pytest.mark.slow
def test_heads_stay_exact_where_they_were_farthest_off(
    run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = run("--plot", tmp_path / "a.png")
    lines = output.read_text("utf-8").splitlines()
    rows = {(row["name"], row["size"]): row for row in map(json.loads, lines)}
    order = torch.tensor(rows["map", min(SHARES)]["errors"]).flatten().argsort(descending=True)
    for share in EXACT:
        exact, number = torch.tensor(rows["worst", share]["shares"]).flatten() == 1, int(8 * share)
        assert exact.sum() == number + 1 and exact[order[: number + 1]].all()
        assert rows["even", share]["share"] <= rows["worst", share]["share"]
    shares = [rows["tolerance", tolerance]["share"] for tolerance in TOLERANCES]
    assert shares == sorted(shares, reverse=True) and rows["tolerance", 0.05]["lost"] < 0.001
    assert rows["even", 0.0]["lost"] > rows["worst", EXACT[-1]]["lost"] > 0
    assert "rank correlation" in capsys.readouterr().out and imread(tmp_path / "a.png").std() > 0.05
    output.write_text("\n".join([*lines[:5], *lines[6:]]) + "\n", "utf-8")
    again = run().read_text("utf-8").splitlines()
    assert sorted(again) == sorted(lines)  # what was missing is as it was, the rest is kept


def test_nothing_is_lost_where_all_heads_are_exact(tiny_model: str) -> None:
    model = AutoModel.from_pretrained(tiny_model).eval()
    few, batches = read_few(64, 1 / 4), [{"input_ids": torch.arange(1, 65)[None] % 11}]
    lost = [
        1 - jat_graph.fidelity(model, batches, config, queries=QUERIES).token_cosine
        for config in (few, keep_exact(few, (2, 4), torch.arange(8)))
    ]
    assert lost[0] > 1e-4 > 1e-9 > abs(lost[1])


def test_bad_input_is_one_line(run: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"texts": 1}\n')
    with pytest.raises(SystemExit, match=r"exact_heads: error: .* layout of numbers of exact"):
        run()
    with pytest.raises(SystemExit, match=r"error: texts must be 6 of 64 tokens, got 0"):
        run("--seeds", "3")
