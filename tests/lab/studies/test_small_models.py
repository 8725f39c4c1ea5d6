"""Tokenizers of a task's words and characters, and models that begin without weights."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer

from jat_graph.lab.studies.small_models import (
    FEATURES,
    HEADS,
    SPECIAL,
    character_tokenizer,
    decoder_config,
    encoder_config,
    small_tokenizer,
    word_tokenizer,
    write_model,
)
from jat_graph.tasks import SteppingStonesTask

SIZES = {"train_size": 12, "validation_size": 12, "test_size": 12}


def test_a_name_has_two_tokens_and_a_sentence_five() -> None:
    found = small_tokenizer()
    text = "does red lamp cost more than old hat? old hat costs more than red lamp."
    said = ["[CLS]", "red", "lamp", ">", "old", "hat", "?", "old", "hat", ">", "red", "lamp"]
    assert found.convert_ids_to_tokens(found(text)["input_ids"]) == [*said, "[SEP]"]


def test_every_word_of_every_text_is_known() -> None:
    found = small_tokenizer()
    for rows in SteppingStonesTask(**SIZES, things=8).load(None).values():
        for ids in found(list(rows["text"]))["input_ids"]:
            assert found.unk_token_id not in ids
            assert len(ids) == 2 + 6 + 5 * 14


@given(
    texts=st.lists(st.lists(st.text("aB]é", min_size=1, max_size=2)).map(" ".join), min_size=1),
    seen=st.integers(1, 3),
)
def test_words_that_are_seen_often_enough_are_known(texts: list[str], seen: int) -> None:
    counts = Counter(word for text in texts for word in text.split())
    found = word_tokenizer(texts, seen)
    known = {word for word, count in counts.items() if count >= seen}
    assert set(found.get_vocab()) == {*SPECIAL, *known}
    assert found.get_vocab() == word_tokenizer(iter(texts), seen).get_vocab()
    for text in texts:
        words = [word if word in known else "[UNK]" for word in text.split()]
        tokens = found.convert_ids_to_tokens(found(text)["input_ids"])
        assert tokens == ["[CLS]", *words, "[SEP]"]


@given(st.text("a B\n\té", min_size=1))
def test_each_character_is_a_token(text: str) -> None:
    found = character_tokenizer([text])(text, add_special_tokens=False, return_offsets_mapping=True)
    assert found["offset_mapping"] == [(place, place + 1) for place in range(len(text))]
    tokenizer = character_tokenizer([text])
    assert "".join(tokenizer.convert_ids_to_tokens(found["input_ids"])) == text


def test_more_words_than_the_trainers_own_limit_are_known() -> None:
    words = [f"w{number}" for number in range(31_000)]
    assert len(word_tokenizer([" ".join(words)])) == len(SPECIAL) + len(words)


@pytest.mark.parametrize("layers", [1, 3])
def test_an_encoder_is_read_as_any_other(layers: int, tmp_path: Path) -> None:
    write_model(tmp_path, encoder_config(layers), small_tokenizer())
    config = AutoConfig.from_pretrained(tmp_path)
    assert (config.num_hidden_layers, config.num_attention_heads) == (layers, HEADS)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.get_vocab() == small_tokenizer().get_vocab()
    assert (config.vocab_size, config.pad_token_id) == (len(tokenizer), tokenizer.pad_token_id)
    outputs = AutoModel.from_config(config)(**tokenizer("red lamp", return_tensors="pt"))
    assert outputs.last_hidden_state.shape == (1, 4, FEATURES)


def test_a_decoder_needs_no_tokenizer(tmp_path: Path) -> None:
    write_model(tmp_path, decoder_config(2))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    config = AutoConfig.from_pretrained(tmp_path, vocab_size=9)
    model = AutoModelForCausalLM.from_config(config)
    assert (model.config.num_hidden_layers, model.config.num_attention_heads) == (2, HEADS)
