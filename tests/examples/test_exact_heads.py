"""The example that keeps heads exact, on a tiny model."""

import json
import sys
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from transformers import AutoModel

import jat_graph
from examples import exact_heads
from examples.exact_heads import EXACT, QUERIES, SHARES, TOLERANCES, keep_exact, read_few
from tests.examples.conftest import WORDS


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, model: str, *words: str) -> Path:
    text, output = folder / "text.txt", folder / "rows.jsonl"
    text.write_text(" ".join(WORDS[(3 * i + i // 7) % len(WORDS)] for i in range(200)))
    given = ["--model", model, "--file", str(text), "--output", str(output), "--length", "64"]
    words = ("--texts", "1", "--seeds", "1", *words)
    monkeypatch.setattr(sys, "argv", ["exact_heads", *given, *words])
    exact_heads.main()
    return output


def test_heads_stay_exact_where_they_were_farthest_off(
    tiny_model: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = run(monkeypatch, tmp_path, tiny_model, "--plot", str(tmp_path / "a.png"))
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
    again = run(monkeypatch, tmp_path, tiny_model).read_text("utf-8").splitlines()
    assert sorted(again) == sorted(lines)  # what was missing is as it was, the rest is kept


def test_nothing_is_lost_where_all_heads_are_exact(tiny_model: str) -> None:
    model = AutoModel.from_pretrained(tiny_model).eval()
    few, batches = read_few(64, 1 / 4), [{"input_ids": torch.arange(1, 65)[None] % 11}]
    lost = [
        1 - jat_graph.fidelity(model, batches, config, queries=QUERIES).token_cosine
        for config in (few, keep_exact(few, (2, 4), torch.arange(8)))
    ]
    assert lost[0] > 1e-4 > 1e-9 > abs(lost[1])


def test_bad_input_is_one_line(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"texts": 1}\n')
    with pytest.raises(SystemExit, match=r"exact_heads: error: .* layout of numbers of exact"):
        run(monkeypatch, tmp_path, tiny_model)
    with pytest.raises(SystemExit, match=r"error: texts must be 6 of 64 tokens, got 0"):
        run(monkeypatch, tmp_path, tiny_model, "--seeds", "3")
