"""Run the command line inside the test, and a tiny model that it works on."""

from collections.abc import Callable

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from typer.testing import CliRunner, Result

from jat_graph.cli.app import app

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = ["book", "pencil", "computer", "costs", "more", "less", "than", "the", "a", "is", "not"]

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Return a function that runs one command; what it raises is raised here."""

    def call(*arguments: object) -> Result:
        words = [str(argument) for argument in arguments]
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, words, catch_exceptions=False)

    return call


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a random BERT whose scores are large enough for keys to vote."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(SPECIAL + WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.25,  # 12 times the usual: with that, no product reaches any ρ
    )
    folder = tmp_path_factory.mktemp("tiny")
    BertModel(config).save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, sep_token="[SEP]", model_max_length=64, **names
    ).save_pretrained(folder)
    return str(folder)
