"""A model and its saved folder say which heads jump, how strongly, and how to load them."""

import copy
import json
import pickle
import re
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from torch import nn

from jat_graph import JatConfig, PairGraph, attach, detach, disabled, save_pretrained, summary
from jat_graph.hf import attached_config
from tests.hf.models import tiny_model
from tests.hf.test_adapter import lora

TABLE = ((1.0, 2.0), (3.0, 3.0))
PAIRS = "pairs, threshold 6, hop weights (0, 1)"
TABLED = JatConfig.paper(threshold=TABLE, key_selection="significance", heads=(0, 2), layers=(0, 2))
GROUPS = JatConfig.paper(vote_rate=0.05, heads=2, hop_weights={(0,): (0.5, 0.5), (1,): (0.0, 1.0)})
FIXED = JatConfig.stones(strength=((0.1, 0.2, 0.3), (0, 0, 1)), hops=2, pattern="window:4")
LAYER = JatConfig(conv={"layer": "APPNP", "K": 2, "alpha": 0.1}, heads=1, layers=(0,))
CASES: list[tuple[Any, list[str]]] = [
    (JatConfig(), [f"layers 0-2: jump heads 0-3 of 4: {PAIRS}"]),
    (TABLED, ["layer 0: jump heads 0, 2 of 4: pairs, threshold 1 to 2", "layer 2: jump"]),
    (GROUPS, ["pairs, vote rate 0.05, hop weights (0.5, 0.5) or (0, 1)"]),
    (FIXED, ["threshold 1, within window:4", "keys 0.2, then 0, values 0.3, then 1"]),
    (LAYER, ["layer 0: jump heads 0 of 4", "layer APPNP, learned, queries 0, keys 0, values 0"]),
]
ONE = JatConfig(PairGraph(threshold=4.0), heads=1, layers=(1,))


@pytest.mark.parametrize(("config", "parts"), CASES)
def test_a_summary_says_which_heads_jump_and_how(config, parts):
    said = summary(attach(tiny_model("bert"), config))
    first, *lines = said.splitlines()
    assert first == "BertModel has heads of jat_graph"
    assert max(map(len, lines)) <= 80
    assert all(part in joined(said) for part in parts)


def joined(text: str) -> str:
    """Undo the breaks of lines that are further in."""
    return re.sub(r"(?<=\S)\n {4,}(?=\S)(?! *layer)", " ", text)


def learned(layers: Any) -> nn.Module:
    model = attach(
        tiny_model("bert"), JatConfig.stones(strength=("learned", "learned", 0.5), layers=layers)
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".theta"):
                weight[0, 0] += torch.tensor([0.1, -0.25, 0.0, 0.1])
    return model


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_learned_strengths_are_said_as_they_are_now():
    line = "stones, threshold 1, learned, queries -0.25 to 0.1, keys 0, values 0.5"
    model = learned((1,))
    for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), lora(model)):
        assert f"  layer 1: jump heads 0-3 of 4: {line}" in joined(summary(twin))
    with disabled(model):
        assert "has heads of jat_graph (switched off)\n" in summary(model)


@pytest.mark.parametrize("config", [ONE, JatConfig.stones()], ids=["pairs", "stones"])
def test_a_card_loads_the_model_that_it_is_about(config, tmp_path):
    attached = attach(tiny_model("bert"), config)
    save_pretrained(attached, tmp_path)
    card = ModelCard.load(tmp_path / "README.md")
    assert "jat_graph" in card.data.tags and card.data.library_name == "transformers"
    assert summary(attached) in card.text
    (settings,) = re.findall(r"```json\n(.*?)```", card.text, re.DOTALL)
    assert JatConfig.from_dict(json.loads(settings)["jat"]) == config
    (lines,) = re.findall(r"```python\n(.*?)```", card.text, re.DOTALL)
    found: dict[str, Any] = {}
    exec(lines.replace("FOLDER", str(tmp_path)), found)
    assert attached_config(found["model"]) == config
    assert str(tmp_path) not in card.content


def test_a_card_is_that_of_the_last_save(tmp_path):
    attached = attach(tiny_model("bert"), ONE)
    save_pretrained(attached, tmp_path)
    first = (tmp_path / "README.md").read_text(encoding="utf-8")
    attach(attached, JatConfig.clustered(layers=(0,)))
    save_pretrained(attached, tmp_path)
    both = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "cluster heads" in both and "cluster heads" not in first
    with pytest.raises(ValueError, match="must have heads of jat_graph to save"):
        save_pretrained(detach(attached), tmp_path / "plain")
    assert not (tmp_path / "plain").exists()


def test_what_somebody_else_wrote_stays(tmp_path):
    (tmp_path / "README.md").write_bytes(b"my own\xff")
    save_pretrained(attach(tiny_model("bert"), ONE), tmp_path)
    assert (tmp_path / "README.md").read_bytes() == b"my own\xff"
