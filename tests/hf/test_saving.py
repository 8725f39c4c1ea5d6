"""A saved folder says which heads its model has, and how to load it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import BertConfig, BertModel

import jat_graph
from jat_graph.hf import attached_config
from jat_graph.jumps.config import JatConfig, PairGraph

PAIRS = JatConfig(PairGraph(threshold=4.0), heads=1, layers=(1,))
FIELDS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 9}


def model() -> BertModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(**FIELDS, intermediate_size=16))


@pytest.mark.parametrize("config", [PAIRS, JatConfig.stones()], ids=["pairs", "stones"])
def test_a_card_loads_the_model_that_it_is_about(config: JatConfig, tmp_path: Path) -> None:
    attached = jat_graph.attach(model(), config)
    jat_graph.save_pretrained(attached, tmp_path)
    card = ModelCard.load(tmp_path / "README.md")
    assert "jat_graph" in card.data.tags and card.data.library_name == "transformers"
    assert jat_graph.summary(attached) in card.text
    (settings,) = re.findall(r"```json\n(.*?)```", card.text, re.DOTALL)
    assert JatConfig.from_dict(json.loads(settings)["jat"]) == config
    (lines,) = re.findall(r"```python\n(.*?)```", card.text, re.DOTALL)
    found: dict[str, Any] = {}
    exec(lines.replace("FOLDER", str(tmp_path)), found)
    assert attached_config(found["model"]) == config
    assert str(tmp_path) not in card.content


def test_a_card_is_that_of_the_last_save(tmp_path: Path) -> None:
    attached = jat_graph.attach(model(), PAIRS)
    jat_graph.save_pretrained(attached, tmp_path)
    first = (tmp_path / "README.md").read_text(encoding="utf-8")
    jat_graph.attach(attached, JatConfig.clustered(layers=(0,)))
    jat_graph.save_pretrained(attached, tmp_path)
    both = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "cluster heads" in both and "cluster heads" not in first
    with pytest.raises(ValueError, match="must have heads of jat_graph to save"):
        jat_graph.save_pretrained(jat_graph.detach(attached), tmp_path / "plain")
    assert not (tmp_path / "plain").exists()


def test_what_somebody_else_wrote_stays(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"my own\xff")
    jat_graph.save_pretrained(jat_graph.attach(model(), PAIRS), tmp_path)
    assert (tmp_path / "README.md").read_bytes() == b"my own\xff"
