"""The tokenizer of stepping stones, and encoders that begin without weights."""

from pathlib import Path

import pytest
from transformers import AutoModel, AutoTokenizer

from jat_graph.lab.studies.small_encoder import HEADS, small_tokenizer, write_encoder
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


@pytest.mark.parametrize("layers", [1, 3])
def test_an_encoder_is_read_as_any_other(layers: int, tmp_path: Path) -> None:
    from transformers import AutoConfig

    write_encoder(tmp_path, layers)
    config = AutoConfig.from_pretrained(tmp_path)
    assert (config.num_hidden_layers, config.num_attention_heads) == (layers, HEADS)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.get_vocab() == small_tokenizer().get_vocab()
    assert config.vocab_size == len(tokenizer)
    outputs = AutoModel.from_config(config)(**tokenizer("red lamp", return_tensors="pt"))
    assert outputs.last_hidden_state.shape == (1, 4, 64)
