import re
import sys

import pytest
import torch

from examples import jat_encoder
from examples.tasks.listops import listops_task
from models.jat_encoder import JatEncoder

LINE = re.compile(
    r"(?P<name>\w+): (?P<mean>[\d.]+)% right \((?P<low>[\d.]+)% to (?P<high>[\d.]+)%, 2 seeds\), "
    r"((?P<joined>\d+)% of pairs joined, )?\d+ s a seed"
)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    settings = ["--steps", "2", "--batch-size", "4", "--train-size", "20", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["jat_encoder", *settings, *words])
    jat_encoder.main()


def test_it_compares_kinds_of_heads_in_a_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    joined = {}
    for threshold in ("0", "1e9"):
        run(monkeypatch, "--max-length", "8", "--threshold", threshold)
        lines = [LINE.fullmatch(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["name"] for line in lines] == [
            "plain",
            "jump",
            "GCNConv",
            "GATv2Conv",
            "StoneConv",
        ]
        assert all(float(x["low"]) <= float(x["mean"]) <= float(x["high"]) for x in lines)
        joined[threshold] = [line["joined"] for line in lines]
    assert joined["1e9"][:4] == [None, "0", "0", "0"]
    assert all(int(share) > 50 for share in joined["0"][1:4])
    assert 0 < int(joined["0"][4]) < 100  # stones have a threshold of their own


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--threshold", "-1"), "threshold must be"),
        (("--min-length", "9", "--max-length", "8"), "min_length must be from 4 to max_length"),
        (("--train-size", "0"), "train must be 1 or more, got 0"),
        (("--seeds", "0"), "seeds must be at least 1, got 0"),
        (("--steps", "0"), "steps must be at least 1, got 0"),
        (("--batch-size", "0"), "batch_size must be at least 1, got 0"),
        (("--learning-rate", "0"), "learning_rate must be above 0, got 0.0"),
        (("--conv", "GraphConv2"), "conv must name a layer of torch_geometric.nn or jat_graph.nn"),
        (("--conv", "APPNP"), "conv APPNP of {}: "),
    ],
)
def test_bad_input_is_one_line(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, *words)
    assert str(caught.value).startswith("jat_encoder: error: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("conv", [None, "GCNConv", "GATv2Conv", "StoneConv"])
def test_training_learns_a_few_lists_by_heart(conv: str | None) -> None:
    rows = listops_task(train=20, min_length=4, max_length=8).load(None, ["train"])["train"]
    tokens, labels = jat_encoder.encode(rows)
    assert tokens.shape == (20, 9)
    assert (tokens[:, 0] == jat_encoder.FIRST).all()
    torch.manual_seed(0)
    config = jat_encoder.settings(threshold=1.0, conv=conv)
    model = JatEncoder(len(jat_encoder.WORDS), 10, config, channels=32, layers=1)
    jat_encoder.fit(model, tokens, labels, steps=80, batch=20, rate=1e-2)
    assert (jat_encoder.evaluate(model, tokens).argmax(-1) == labels).float().mean() > 0.9
    assert (model.layers[0].attention.strength.theta != 0).any()
