import re

import pytest
import torch

from examples import jat_encoder
from examples.tasks.listops import listops_task
from models.jat_encoder import JatEncoder
from tests.examples.conftest import Call

LINE = re.compile(
    r"(?P<name>\w+): (?P<mean>[\d.]+)% right \((?P<low>[\d.]+)% to (?P<high>[\d.]+)%, 2 seeds\), "
    r"((?P<joined>\d+)% of pairs joined, )?\d+ s a seed"
)


@pytest.mark.slow
def test_it_compares_kinds_of_heads_in_a_line_each(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--steps 2 --batch-size 4 --train-size 20 --seeds 2 --max-length 8".split()
    joined = {}
    for threshold in ("0", "1e9"):
        call(jat_encoder, *words, "--threshold", threshold)
        lines = [LINE.fullmatch(line) for line in capsys.readouterr().out.splitlines()]
        names = ["plain", "jump", "GCNConv", "GATv2Conv", "StoneConv"]
        assert [line["name"] for line in lines] == names
        assert all(float(x["low"]) <= float(x["mean"]) <= float(x["high"]) for x in lines)
        joined[threshold] = [line["joined"] for line in lines]
    assert joined["1e9"][:4] == [None, "0", "0", "0"]
    assert all(int(share) > 50 for share in joined["0"][1:4])
    assert 0 < int(joined["0"][4]) < 100  # stones have a threshold of their own


@pytest.mark.slow
@pytest.mark.parametrize("conv", [None, "GCNConv", "GATv2Conv", "StoneConv"])
def test_training_learns_a_few_lists_by_heart(conv: str | None) -> None:
    rows = listops_task(train=20, min_length=4, max_length=8).load(None, ["train"])["train"]
    tokens, labels = jat_encoder.encode(rows)
    assert tokens.shape == (20, 9)
    assert (tokens[:, 0] == jat_encoder.FIRST).all()
    torch.manual_seed(0)
    config = jat_encoder.settings(threshold=1.0, conv=conv)
    model = JatEncoder(len(jat_encoder.WORDS), 10, config, channels=32, layers=1)
    args = jat_encoder.Options(steps=80, batch_size=20, learning_rate=1e-2)
    jat_encoder.fit(model, tokens, labels, args)
    assert (jat_encoder.evaluate(model, tokens).argmax(-1) == labels).float().mean() > 0.9
    assert (model.layers[0].attention.strength.theta != 0).any()
