"""Heads that are tried on a model's configuration: what fits, and what does not."""

import pytest
import torch
from transformers import AutoModel, BertConfig

from jat_graph.config import JatConfig
from jat_graph.hf import TripletConfig
from jat_graph.hf.trial import try_heads


def settings() -> BertConfig:
    return BertConfig(num_hidden_layers=3, num_attention_heads=12, vocab_size=50)


def test_which_heads_would_jump_is_known_without_weights() -> None:
    own, before = settings(), settings().to_dict()
    state = torch.get_rng_state()
    assert try_heads(AutoModel, own, (JatConfig(heads="even:2", layers=(0, 2)),)) == {
        0: (0, 2),
        2: (0, 2),
    }
    stones = try_heads(AutoModel, own, (JatConfig.stones(heads=1),), depth=5)
    assert stones == dict.fromkeys(range(5), (0,))
    assert try_heads(AutoModel, own, ()) == {}
    assert own.to_dict() == before
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("configs", "depth", "message"),
    [
        ((JatConfig(heads=13),), None, "needs head 12, but the model has 12 heads"),
        ((JatConfig(layers=(3,)),), None, "needs layer 3, but the model has 3 layers"),
        ((JatConfig(layers=(2,)),), 2, "needs layer 2, but the model has 2 layers"),
        ((JatConfig(heads="all"), TripletConfig()), None, "is a jump head and cannot be"),
    ],
)
def test_what_does_not_fit_is_refused(
    configs: tuple[JatConfig | TripletConfig, ...], depth: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        try_heads(AutoModel, settings(), configs, depth)
