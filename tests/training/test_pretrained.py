"""Tokenizers that will not do are named; noise is hidden, news is not."""

import logging
from pathlib import Path

import pytest
from transformers import AutoTokenizer, LlamaConfig
from transformers.utils import logging as bars

from jat_graph.training.pretrained import load_tokenizer, quiet


def test_only_known_noise_is_hidden(caplog: pytest.LogCaptureFixture) -> None:
    loader = logging.getLogger("transformers.modeling_utils")
    enabled = bars.is_progress_bar_enabled()
    bars.enable_progress_bar()
    with quiet():
        loader.warning("BertModel LOAD REPORT from: x")
        loader.warning("something else")
        assert not bars.is_progress_bar_enabled()
    assert bars.is_progress_bar_enabled()
    loader.warning("BertModel LOAD REPORT from: y")
    if not enabled:
        bars.disable_progress_bar()
    assert [r.getMessage()[-1] for r in caplog.records] == ["e", "y"]


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    LlamaConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"^no tokenizer for model '.*': it has no files of one$"):
        load_tokenizer(str(tmp_path))


def test_a_tokenizer_without_padding_pads_with_its_end(tiny_model: str, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="has no padding and no end token"):
        load_tokenizer(str(tmp_path))
    tokenizer.eos_token = "[SEP]"
    tokenizer.save_pretrained(tmp_path)
    assert load_tokenizer(str(tmp_path)).pad_token == "[SEP]"
