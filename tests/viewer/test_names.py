"""Tensors under TransformerLens' names, against what the model's own parts give."""

from collections.abc import Callable

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    BertTokenizer,
    GPT2Config,
    GPT2Model,
    PreTrainedModel,
)

from jat_graph.hf import attach, disabled
from jat_graph.jumps.config import JatConfig, PairGraph
from jat_graph.viewer import hooked_tensors

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] dogs bark at cats and the moon".split()
TEXT = "dogs bark at cats and cats bark at the moon"
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={word: number for number, word in enumerate(WORDS)})


def encoder() -> PreTrainedModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(**SMALL, vocab_size=len(WORDS), initializer_range=0.3)).eval()


def decoder() -> PreTrainedModel:
    torch.manual_seed(0)
    shape = {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": len(WORDS)}
    return GPT2Model(GPT2Config(**shape, initializer_range=0.3)).eval()


def attention(model: PreTrainedModel, tokenizer: BertTokenizer) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        return model(**tokenizer(TEXT, return_tensors="pt"), output_attentions=True).attentions


@pytest.mark.parametrize("make", [encoder, decoder])
def test_scores_of_a_base_make_its_probabilities(
    make: Callable[[], PreTrainedModel], tokenizer: BertTokenizer
) -> None:
    model = make()
    before = model.config._attn_implementation, set(model.state_dict())
    found = hooked_tensors(model, tokenizer, TEXT)
    assert (model.config._attn_implementation, set(model.state_dict())) == before
    assert list(found) == [
        f"blocks.{layer}.attn.{name}"
        for layer in range(3)
        for name in ("hook_pattern", "hook_attn_scores")
    ]
    model.set_attn_implementation("eager")
    for layer, rows in enumerate(attention(model, tokenizer)):
        pattern, scores = (
            found[f"blocks.{layer}.attn.hook_{n}"] for n in ("pattern", "attn_scores")
        )
        torch.testing.assert_close(pattern, rows)
        torch.testing.assert_close(scores.softmax(-1), rows)
        assert bool((scores == -torch.inf).any()) is isinstance(model, GPT2Model)


def test_jumps_of_pairs_are_scores_between_two_graphs(tokenizer: BertTokenizer) -> None:
    model = encoder()
    config = JatConfig(PairGraph(vote_rate=0.2), heads=(1, 3), layers=(0, 2))
    attach(model, config)
    found = hooked_tensors(model, tokenizer, TEXT)
    assert "blocks.1.attn.hook_attn_scores" not in found
    rows = attention(model, tokenizer)
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


@pytest.mark.parametrize("make", [encoder, decoder])
def test_walks_over_stones_are_given(
    make: Callable[[], PreTrainedModel], tokenizer: BertTokenizer
) -> None:
    model = make()
    attach(model, JatConfig.stones(strength=0.5), tokenizer)
    found = hooked_tensors(model, tokenizer, TEXT)
    for layer, rows in enumerate(attention(model, tokenizer)):
        walk = found[f"blocks.{layer}.attn.hook_adj_norm"]
        torch.testing.assert_close(walk.sum(-1), torch.ones_like(walk[..., 0]))
        jumps = found[f"blocks.{layer}.attn.hook_jump_scores"]
        torch.testing.assert_close(jumps.softmax(-1), rows)
    with disabled(model):
        base = hooked_tensors(model, tokenizer, TEXT)
    assert "blocks.0.attn.hook_jump_scores" not in base
    scores = base["blocks.1.attn.hook_attn_scores"]
    torch.testing.assert_close(scores.softmax(-1), base["blocks.1.attn.hook_pattern"])


def test_layers_that_share_a_module_are_refused(tokenizer: BertTokenizer) -> None:
    shape = {"embedding_size": 16, "intermediate_size": 64, "vocab_size": len(WORDS)}
    model = AlbertModel(AlbertConfig(**SMALL, **shape)).eval()
    with pytest.raises(ValueError, match="a module for each layer to give scores, got layers that"):
        hooked_tensors(model, tokenizer, TEXT)
    assert model.config._attn_implementation == "sdpa"
