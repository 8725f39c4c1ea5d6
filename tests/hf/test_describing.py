"""A model says which of its heads jump, how, and how strongly."""

import copy
import pickle
import re
from typing import Any

import pytest
import torch
from torch import nn

import jat_graph
from jat_graph import JatConfig, PairGraph, attach, detach, disabled
from jat_graph.attention.heads import JumpStrength
from jat_graph.hf import TripletConfig
from tests.hf.models import tiny_model
from tests.hf.test_adapter import lora

TABLE = ((1.0, 2.0), (3.0, 3.0))


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        (JatConfig(), ["layers 0-2: jump heads 0-3 of 4: pairs, threshold 6, hop weights (0, 1)"]),
        (
            JatConfig(
                PairGraph(threshold=TABLE, key_selection="significance"),
                heads=(0, 2),
                layers=(0, 2),
            ),
            [
                "layer 0: jump heads 0, 2 of 4: pairs, threshold 1 to 2, significance keys, "
                "hop weights (0, 1)",
                "layer 2: jump heads 0, 2 of 4: pairs, threshold 3, significance keys, "
                "hop weights (0, 1)",
            ],
        ),
        (
            JatConfig(
                PairGraph(vote_rate=0.05), heads=2, hop_weights={(0,): (0.5, 0.5), (1,): (0.0, 1.0)}
            ),
            [
                "layers 0-2: jump heads 0-1 of 4: pairs, vote rate 0.05, "
                "hop weights (0.5, 0.5) or (0, 1)"
            ],
        ),
        (
            JatConfig.stones(strength=((0.1, 0.2, 0.3), (0, 0, 1)), hops=2, pattern="window:4"),
            [
                "layers 0-2: jump heads 0-3 of 4: stones, threshold 1, within window:4, "
                "queries 0.1, then 0, keys 0.2, then 0, values 0.3, then 1"
            ],
        ),
        (
            JatConfig(conv={"layer": "APPNP", "K": 2, "alpha": 0.1}, heads=1, layers=(0,)),
            [
                "layer 0: jump heads 0 of 4: pairs, threshold 6, layer APPNP, learned, "
                "queries 0, keys 0, values 0"
            ],
        ),
        (TripletConfig(layers=(1,)), ["layer 1: triplet heads 1-3 of 4: pairs partner"]),
    ],
)
def test_a_summary_has_a_line_for_layers_that_are_alike(config: Any, lines: list[str]) -> None:
    said = jat_graph.summary(attach(tiny_model("bert"), config))
    assert joined(said).splitlines() == [
        "BertModel has heads of jat_graph",
        *(f"  {line}" for line in lines),
    ]


def joined(text: str) -> str:
    """Undo the breaks of lines that are further in."""
    return re.sub(r"(?<=\S)\n {4,}(?=\S)(?! *layer)", " ", text)


def test_no_line_breaks_between_brackets() -> None:
    tables = [[10.0**head for head in range(4)] for _ in range(3)]
    for hops in range(1, 6):
        config = JatConfig(PairGraph(threshold=tables), heads=4, hop_weights=(0.0,) * hops + (1.0,))
        said = jat_graph.summary(attach(tiny_model("bert"), config))
        weights = "(" + "0, " * hops + "1)"
        assert sum(weights in line for line in said.splitlines()) == 1


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_no_line_of_ours_is_wider_than_a_terminal() -> None:
    config = JatConfig.stones(hops=2, pattern="window:64+global:1", key_factor=2.0)
    model = attach(tiny_model("bert"), config)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, JumpStrength):
                module.theta.normal_()
    text = jat_graph.summary(lora(model))
    assert "values " in text
    assert max(map(len, text.splitlines())) <= 80


def learned(layers: Any) -> nn.Module:
    model = attach(
        tiny_model("bert"), JatConfig.stones(strength=("learned", "learned", 0.5), layers=layers)
    )
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, JumpStrength):
                module.theta[0, 0] += torch.tensor([0.1, -0.25, 0.0, 0.1])
    return model


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_learned_strengths_are_said_as_they_are_now() -> None:
    line = "stones, threshold 1, learned, queries -0.25 to 0.1, keys 0, values 0.5"
    model = learned((1,))
    for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), lora(model)):
        assert f"  layer 1: jump heads 0-3 of 4: {line}" in joined(jat_graph.summary(twin))
    with disabled(model):
        assert "has heads of jat_graph (switched off)\n" in jat_graph.summary(model)


def test_heads_of_two_kinds_share_a_line() -> None:
    model = attach(tiny_model("bert"), JatConfig(heads=1))
    attach(model, TripletConfig(layers=(1,)))
    said = joined(jat_graph.summary(model)).splitlines()
    assert said[2].endswith("hop weights (0, 1); triplet heads 1-3 of 4: pairs partner")
    assert "triplet" not in said[1] + said[3]
    detach(model, JatConfig)
    assert "jump heads" not in jat_graph.summary(model)
