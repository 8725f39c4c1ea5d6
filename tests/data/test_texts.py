"""Tokens and words of texts, as their graphs show them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from jat_graph.data import AttentionGraphs
from tests.data.support import assert_is, attention_maps, slow_graph, tiny_tokenizer
from tests.hf.models import tiny_model


def graphs(root: Path, texts: Any, tokenizer: Any = None, **settings: Any) -> AttentionGraphs:
    model = tiny_model("bert").double()
    options = {"heads": [(0, 1)], "max_neighbors": None} | settings
    return AttentionGraphs(root, texts, model, tokenizer or tiny_tokenizer(), **options)


def test_words_are_those_of_strings_and_of_lists(tmp_path: Path) -> None:
    texts = ["barks dook", "fillingly"]
    strings = graphs(tmp_path / "a", texts, nodes="words")
    lists = graphs(tmp_path / "b", [text.split() for text in texts], nodes="words")
    assert [graph.num_nodes for graph in strings] == [2, 1]
    for one, two in zip(strings, lists, strict=True):
        assert torch.equal(one.x, two.x) and torch.equal(one.edge_attr, two.edge_attr)


def test_words_of_a_byte_level_tokenizer_are_not_glued_together(tmp_path: Path) -> None:
    vocabulary = {"the": 0, "Ġbank": 1, "Ġ": 2, "bank": 3, "thebank": 4, "?": 5}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64)
    texts = [["the", "bank"], ["bank", "the"]]
    tokens = graphs(tmp_path, texts, tokenizer)
    assert [graph.input_ids.tolist() for graph in tokens] == [[0, 1], [3, 5]]
    model = tiny_model("bert").double()
    model.set_attn_implementation("eager")
    for text, graph in zip(texts, graphs(tmp_path, texts, tokenizer, nodes="words"), strict=True):
        states, rows, _ = attention_maps(model, tokenizer, " ".join(text))
        assert_is(graph, slow_graph(states[-1], [rows[0][1]], None, [0, 1]))


def test_long_texts_are_cut_to_what_the_model_takes(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(model_max_length=10**30)
    (whole,) = graphs(tmp_path, [["dook"] * 99], tokenizer, y=[list(range(99))], nodes="words")
    assert whole.y.tolist() == list(range(62))  # with two special tokens 64
    assert graphs(tmp_path, ["dook " * 99], tokenizer, max_length=7)[0].num_nodes == 7


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("dook", "texts must"),
        ([], "texts must"),
        (["dook", ["dook"]], r"texts\[1\] must"),
        ([["dook"], "dook"], r"texts\[1\] must"),
        ([["dook", 3]], r"texts\[0\] must"),
        ([None], r"texts\[0\] must"),
        ([["dook", "a\udc80"]], r"texts\[0\] must be Unicode text, got a lone surrogate at 1"),
    ],
)
def test_wrong_texts_are_refused(texts: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        graphs(tmp_path, texts)


def test_a_text_without_tokens_is_named(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    with pytest.raises(ValueError, match=r"^texts\[1\] must"):
        graphs(tmp_path, ["dook", ""], tokenizer)
