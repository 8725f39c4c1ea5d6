"""Heads of one kind or of two: taken apart, put together, attached."""

import pytest
from transformers import BertModel

from jat_graph.config import JatConfig
from jat_graph.hf import TripletConfig, attached_config
from jat_graph.training import BothHeads
from jat_graph.training.heads import Heads, attach_heads, join_kinds, kinds_of, name_of
from tests.hf.models import tiny_model

JUMP, TRIPLET = JatConfig(heads=1), TripletConfig(layers=(1,))


@pytest.mark.parametrize(
    ("heads", "kinds", "name"),
    [
        (None, (None, None), "jump"),
        (JUMP, (JUMP, None), "jump"),
        (TRIPLET, (None, TRIPLET), "triplet"),
        (BothHeads(JUMP, TRIPLET), (JUMP, TRIPLET), "both"),
    ],
)
def test_kinds_are_taken_apart_and_put_together(heads: Heads | None, kinds, name: str) -> None:
    assert kinds_of(heads) == kinds
    assert join_kinds(*kinds) == heads
    assert name_of(heads) == name
    model = tiny_model("bert")
    assert isinstance(model, BertModel)
    attach_heads(model, heads)
    assert attached_config(model) == kinds[0]
    assert getattr(model.config, "triplet", None) == (kinds[1] and kinds[1].to_dict())


def test_both_are_described_by_the_names_that_a_model_saves() -> None:
    described = {"jat": JUMP.to_dict(), "triplet": TRIPLET.to_dict()}
    assert BothHeads(JUMP, TRIPLET).to_dict() == described
