"""A tiny model, a tiny corpus, and options for runs of a second."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from jat_graph.training import TrainingOptions
from jat_graph.training.trainer import TaskTrainer
from tests.training.support import Options

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = ["book", "pencil", "computer", "costs", "more", "less", "than", "the", "a", "is", "not"]
MARK = "not"  # sentences with it are unacceptable


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums in one order, whatever the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
    )


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
    model = BertModel(config)
    folder = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return str(folder)


def _write_cola(path: Path, rows: int, seed: int, length: tuple[int, int] = (3, 9)) -> None:
    draw = random.Random(seed)
    lines = []
    for row in range(rows):
        words = draw.choices(WORDS[:-1], k=draw.randint(*length))
        if row % 2:
            words[draw.randrange(len(words))] = MARK
        lines.append(f"gj04\t{1 - row % 2}\t{'*' if row % 2 else ''}\t{' '.join(words)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def cola_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder with a small corpus in CoLA's own format."""
    folder = tmp_path_factory.mktemp("CoLA")
    _write_cola(folder / "train.tsv", 48, seed=1)
    _write_cola(folder / "dev.tsv", 24, seed=2)
    return str(folder)


@pytest.fixture(scope="session")
def long_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same with texts of up to 90 words, longer than the tiny model takes."""
    folder = tmp_path_factory.mktemp("long")
    _write_cola(folder / "train.tsv", 24, seed=1, length=(10, 90))
    _write_cola(folder / "dev.tsv", 12, seed=2, length=(10, 90))
    return str(folder)


def _sentence(rng: random.Random) -> list[tuple[str, str]]:
    """Draw words: books and the pencils right after them are things, other pencils are not."""
    words = [rng.choice(WORDS[:6]) for _ in range(rng.randint(3, 9))]
    tags = []
    for before, word in zip(["", *words], words, strict=False):
        inside = word == "pencil" and before == "book"
        tags.append("I-MISC" if inside else "B-MISC" if word == "book" else "O")
    return list(zip(words, tags, strict=True))


@pytest.fixture(scope="session")
def conll_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder with sentences in the layout of CoNLL 2003."""
    folder = tmp_path_factory.mktemp("conll")
    rng = random.Random(0)
    for name, count in (("train.txt", 120), ("valid.txt", 30)):
        blocks = ["\n".join(map(" ".join, _sentence(rng))) for _ in range(count)]
        (folder / name).write_text("\n\n".join(blocks))
    return str(folder)


@pytest.fixture
def options(tiny_model: str, cola_dir: str, tmp_path: Path) -> Options:
    """Return options of a short run, with any field replaced."""

    def build(**changes: Any) -> TrainingOptions:
        settings: dict[str, Any] = {
            "model": tiny_model,
            "task": "cola",
            "data_dir": cola_dir,
            "output_dir": str(tmp_path / "run"),
            "epochs": 3,
            "batch_size": 16,
            "learning_rate": 3e-3,
            "max_length": 16,
            "device": "cpu",
        }
        return TrainingOptions(**(settings | changes))

    return build


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Losses of all training steps from here on."""
    seen: list[float] = []
    original = TaskTrainer.training_step

    def step(self: TaskTrainer, *args: Any) -> torch.Tensor:
        loss = original(self, *args)
        seen.append(loss.item())
        return loss

    monkeypatch.setattr(TaskTrainer, "training_step", step)
    return seen
