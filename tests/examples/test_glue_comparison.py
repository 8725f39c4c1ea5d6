import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from examples import glue_comparison
from jat_graph import JatConfig

SENTENCES = (
    ("They laugh.", 1),
    ("They laughs.", 0),
    ("She eats an apple.", 1),
    ("She an eats.", 0),
)


def write_cola(folder: Path) -> None:
    rows = [f"a\t{label}\t\t{sentence}\n" for sentence, label in SENTENCES]
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("".join(rows * 4), encoding="utf-8")


def save_small_bert(folder: Path, tokenizer_path: str) -> str:
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=128,
    )
    model = BertForSequenceClassification(config)
    for layer in model.bert.encoder.layer:  # scores as large as pretrained ones
        layer.attention.self.query.weight.data *= 20
        layer.attention.self.key.weight.data *= 20
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def test_it_compares_four_arms_and_goes_on_where_it_stopped(
    tmp_path: Path, minilm_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cola(tmp_path)
    output = tmp_path / "out"
    model = save_small_bert(tmp_path / "model", minilm_path)
    words = ["--model", model, "--data-dir", str(tmp_path), "--output", str(output)]
    words += ["--tasks", "cola", "--seeds", "1", "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", ["glue_comparison", *words])
    glue_comparison.main()
    table = (output / "comparison.md").read_text(encoding="utf-8")
    assert all(f"| {arm} " in table for arm in ("base", "paper", "released", "calibrated"))
    results = json.loads((output / "cola" / "results.json").read_text(encoding="utf-8"))
    assert results["arms"]["released"]["config"]["layers"] == [1, 2]  # the others are not there
    thresholds = JatConfig.load(output / "cola.json").threshold
    assert isinstance(thresholds, tuple) and len({row[0] for row in thresholds}) > 1

    finished = (output / "cola" / "base" / "seed-0" / "results.json").stat().st_mtime_ns
    monkeypatch.setattr(sys, "argv", ["glue_comparison", *words[:-3], "2", "--epochs", "1"])
    glue_comparison.main()
    assert (output / "cola" / "base" / "seed-0" / "results.json").stat().st_mtime_ns == finished
    assert (output / "cola" / "calibrated" / "seed-1" / "results.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data-dir", "nowhere"], "nowhere"),
        (["--model", "nowhere"], "load the files"),
        (["--tasks", "cloa"], "task must be one of"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    minilm_path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = ["--model", minilm_path, "--data-dir", str(tmp_path), "--output", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["glue_comparison", *given, *words])
    with pytest.raises(SystemExit, match=f"^glue_comparison: error: .*{message}") as caught:
        glue_comparison.main()
    assert "\n" not in str(caught.value)
