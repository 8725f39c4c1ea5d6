"""Tokens and words of texts."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from jat_graph.data.texts import encode_texts
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_model

MODEL = tiny_model("bert")
TOKENS = tiny_tokenizer(pad_token=None)


def test_words_are_those_of_strings_and_of_lists() -> None:
    tokenizer = tiny_tokenizer()
    texts = ["barks dook", "fillingly"]
    strings = encode_texts(texts, MODEL, tokenizer, None, True)
    lists = encode_texts([text.split() for text in texts], MODEL, tokenizer, None, True)
    assert strings == lists
    assert strings.words == [[-1, 0, 0, 1, -1], [-1, 0, 0, 0, -1]]
    assert strings.num_words == [2, 1] and strings.lengths == [5, 5]


def test_words_of_a_byte_level_tokenizer_are_not_glued_together() -> None:
    vocabulary = {"the": 0, "Ġbank": 1, "Ġ": 2, "bank": 3, "thebank": 4, "?": 5}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64)
    lists = encode_texts([["the", "bank"], ["bank", "the"]], MODEL, tokenizer, None, True)
    assert lists.inputs["input_ids"] == [[0, 1], [3, 5]]
    assert lists.words == [[0, 1], [0, 1]]
    assert lists.inputs["input_ids"] == tokenizer(["the bank", "bank the"])["input_ids"]


def test_long_texts_are_cut_to_what_the_model_takes() -> None:
    tokenizer = tiny_tokenizer(model_max_length=10**30)
    texts = encode_texts([["dook"] * 99], MODEL, tokenizer, None, True)
    assert texts.lengths == [64] and texts.num_words == [99]
    assert encode_texts(["dook " * 99], MODEL, tokenizer, 7, False).lengths == [7]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("dook", "texts must"),
        ([], "texts must"),
        (["dook", ["dook"]], r"texts\[1\] must"),
        ([["dook"], "dook"], r"texts\[1\] must"),
        ([["dook", 3]], r"texts\[0\] must"),
        ([None], r"texts\[0\] must"),
    ],
)
def test_wrong_texts_are_one_line(texts: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_texts(texts, MODEL, tiny_tokenizer(), None, False)  # type: ignore[arg-type]


def test_a_text_without_tokens_is_named() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    with pytest.raises(ValueError, match=r"^texts\[1\] must have a token, got ''$"):
        encode_texts(["dook", ""], MODEL, tokenizer, None, False)
