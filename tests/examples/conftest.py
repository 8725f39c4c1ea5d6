"""A tiny encoder, a tiny decoder, and files of rows for runs of a second."""

import csv
import json
import random
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = ["book", "pencil", "computer", "costs", "more", "less", "than", "the", "a", "is", "not"]

Rows = list[dict[str, Any]]
Write = Callable[[str, Rows], str]
Call = Callable[..., None]
SHORT = ("--max_length", "16", "--use_cpu", "--disable_tqdm", "true", "--learning_rate", "3e-3")


def _save_tokenizer(folder: Path) -> None:
    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPECIAL, strict=True))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, **named
    ).save_pretrained(folder)


def save_tiny_bert(folder: Path, kind: str = "bert", **sizes: int) -> str:
    """Save a random BERT whose scores are large enough for keys to vote, and its tokenizer."""
    torch.manual_seed(0)
    own: dict[str, Any] = {
        "vocab_size": len(SPECIAL + WORDS),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "initializer_range": 0.25,  # 12 times the usual: with that, no product reaches any ρ
    }
    config = AutoConfig.for_model(kind, **own | sizes)
    AutoModel.from_config(config).save_pretrained(folder)
    _save_tokenizer(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of the tiny BERT."""
    return save_tiny_bert(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_roberta(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a random RoBERTa, which counts positions from behind that of padding."""
    sizes = {"max_position_embeddings": 65, "pad_token_id": 0}
    return save_tiny_bert(tmp_path_factory.mktemp("roberta"), "roberta", **sizes)


@pytest.fixture(scope="session")
def tiny_decoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a random GPT-2."""
    torch.manual_seed(0)
    size = len(SPECIAL + WORDS)
    config = GPT2Config(
        vocab_size=size, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.25
    )
    folder = tmp_path_factory.mktemp("decoder")
    GPT2LMHeadModel(config).save_pretrained(folder)
    _save_tokenizer(folder)
    return str(folder)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write rows as CSV, TSV or JSON lines, and return the path."""

    def write_rows(name: str, rows: Rows) -> str:
        path = tmp_path / name
        if path.suffix == ".jsonl":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
            return str(path)
        with path.open("w", newline="", encoding="utf-8") as file:
            separator = "\t" if path.suffix == ".tsv" else ","
            writer = csv.DictWriter(file, [*rows[0]], delimiter=separator)
            writer.writeheader()
            writer.writerows(rows)
        return str(path)

    return write_rows


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a script with the words of a command line."""

    def call_script(script: ModuleType, *words: object) -> None:
        monkeypatch.setattr(sys, "argv", [script.__name__, *map(str, words)])
        script.main()

    return call_script


def train(kind: str, model: str, output: Path, *words: str, steps: int = 2) -> dict[str, float]:
    """Train and evaluate by a run script, for so many steps; return the scores."""
    given = ["--model_name_or_path", model, "--output_dir", str(output), "--do_train", "--do_eval"]
    script = import_module(f"examples.run_{kind}")
    scores: dict[str, float] = script.main([*given, *SHORT, "--max_steps", str(steps), *words])
    return scores


def sentences(count: int, seed: int = 0, words: Sequence[str] = WORDS) -> list[str]:
    """Draw sentences of tiny words."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(3, 9))) for _ in range(count)]
