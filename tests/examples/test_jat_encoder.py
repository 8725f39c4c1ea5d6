import re
import sys

import pytest
import torch

from examples import jat_encoder
from jat_graph import JatConfig
from jat_graph.tasks import ListOpsTask
from models.jat_encoder import JatEncoder

LINE = r"test: base [\d.]+%, \d+ s; jump [\d.]+%, \d+ s; (?P<joined>\d+)% of pairs joined; seed 3\n"


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    settings = ["--steps", "2", "--batch-size", "4", "--train-size", "20", "--seed", "3"]
    monkeypatch.setattr(sys, "argv", ["jat_encoder", *settings, *words])
    jat_encoder.main()


def test_it_compares_two_models_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for threshold in ("0", "1e9"):
        run(monkeypatch, "--max-length", "8", "--threshold", threshold)
        line = re.fullmatch(LINE, capsys.readouterr().out)
        assert line is not None
        found[threshold] = int(line["joined"])
    assert found["0"] > 50
    assert found["1e9"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--threshold", "-1"), "threshold must be"),
        (("--min-length", "9", "--max-length", "8"), "max_length must be min_length or more"),
        (("--train-size", "0"), "train_size must be 1 or more, got 0"),
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


def test_training_learns_a_few_lists_by_heart() -> None:
    rows = ListOpsTask(train_size=20, min_length=4, max_length=8).load(None, ["train"])["train"]
    tokens, labels = jat_encoder.encode(rows)
    assert tokens.shape == (20, 9)
    assert (tokens[:, 0] == jat_encoder.FIRST).all()
    torch.manual_seed(0)
    config = JatConfig(threshold=0.1, heads=2, hop_weights=(0.5, 0.5))
    model = JatEncoder(len(jat_encoder.WORDS), 10, config, channels=32, layers=1)
    jat_encoder.fit(model, tokens, labels, steps=80, batch=20, rate=1e-2)
    assert (jat_encoder.evaluate(model, tokens).argmax(-1) == labels).float().mean() > 0.9
