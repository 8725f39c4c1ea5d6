"""Tensors under TransformerLens' names, against what the model's own parts give."""

import pytest
import torch
from transformers import PreTrainedModel

from jat_graph.hf import attach, disabled
from jat_graph.jumps.config import JatConfig, PairGraph
from jat_graph.viewer import hooked_tensors
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_model

TEXT = "bark dook lump kill fark bill gook lark fill dump"
TOKENIZER = tiny_tokenizer()


def attention(model: PreTrainedModel) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        return model(**TOKENIZER(TEXT, return_tensors="pt"), output_attentions=True).attentions


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_scores_of_a_base_make_its_probabilities(name: str) -> None:
    model = tiny_model(name)
    before = model.config._attn_implementation, set(model.state_dict())
    found = hooked_tensors(model, TOKENIZER, TEXT)
    assert (model.config._attn_implementation, set(model.state_dict())) == before
    names = ("hook_pattern", "hook_attn_scores")
    assert list(found) == [f"blocks.{n}.attn.{name}" for n in range(3) for name in names]
    model.set_attn_implementation("eager")
    for layer, rows in enumerate(attention(model)):
        scores = found[f"blocks.{layer}.attn.hook_attn_scores"]
        torch.testing.assert_close(found[f"blocks.{layer}.attn.hook_pattern"], rows)
        torch.testing.assert_close(scores.softmax(-1), rows)
        assert bool((scores == -torch.inf).any()) is (name == "gpt2")


def test_jumps_of_pairs_are_scores_between_two_graphs() -> None:
    model = attach(
        tiny_model("bert"), JatConfig(PairGraph(vote_rate=0.2), heads=(1, 3), layers=(0, 2))
    )
    found = hooked_tensors(model, TOKENIZER, TEXT)
    assert "blocks.1.attn.hook_attn_scores" not in found
    rows = attention(model)
    for layer in (0, 2):
        scores, jumps, adj_norm = (
            found[f"blocks.{layer}.attn.hook_{name}"]
            for name in ("attn_scores", "jump_scores", "adj_norm")
        )
        torch.testing.assert_close(jumps, adj_norm @ scores @ adj_norm.mT)  # Eq. 9
        torch.testing.assert_close(adj_norm[:, [0, 2]], torch.eye(12).expand(1, 2, -1, -1))
        assert int((adj_norm[:, 1] > 0).sum()) > 12
        torch.testing.assert_close(jumps.softmax(-1), rows[layer])
        assert torch.equal(found[f"blocks.{layer}.attn.hook_pattern"], rows[layer])
    torch.testing.assert_close(found["blocks.1.attn.hook_pattern"], rows[1])


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_walks_over_stones_are_given(name: str) -> None:
    model = attach(tiny_model(name), JatConfig.stones(strength=0.5), TOKENIZER)
    found = hooked_tensors(model, TOKENIZER, TEXT)
    for layer, rows in enumerate(attention(model)):
        walk = found[f"blocks.{layer}.attn.hook_adj_norm"]
        torch.testing.assert_close(walk.sum(-1), torch.ones_like(walk[..., 0]))
        jumps = found[f"blocks.{layer}.attn.hook_jump_scores"]
        torch.testing.assert_close(jumps.softmax(-1), rows)
    with disabled(model):
        base = hooked_tensors(model, TOKENIZER, TEXT)
    assert "blocks.0.attn.hook_jump_scores" not in base
    scores = base["blocks.1.attn.hook_attn_scores"]
    torch.testing.assert_close(scores.softmax(-1), base["blocks.1.attn.hook_pattern"])


def test_layers_that_share_a_module_are_refused() -> None:
    model = tiny_model("albert")
    before = model.config._attn_implementation
    with pytest.raises(ValueError, match="a module for each layer to give scores, got layers that"):
        hooked_tensors(model, TOKENIZER, TEXT)
    assert model.config._attn_implementation == before
