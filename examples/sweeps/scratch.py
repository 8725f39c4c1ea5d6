"""Sweeps of the kind ``scratch``: a small model whose weights are all drawn learns a task.

Words and expressions are read by a BERT, notes and characters by a Llama, of ``study.layers``
layers. Tokens are the words that the training data have ``study.seen`` times, or the characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, LlamaConfig, PreTrainedConfig, PreTrainedTokenizerFast

from examples.data import draw_rows
from examples.sweeps import training
from examples.sweeps.definition import Run
from examples.sweeps.heads import build_heads
from examples.tasks import Task, get_task

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
FEATURES, HEADS = 64, 4
_SIZES = {
    "hidden_size": FEATURES,
    "num_attention_heads": HEADS,
    "intermediate_size": 128,
    "initializer_range": 0.1,  # with 0.02, BERT's, or 0.2 names are compared late or never
}
CHARACTERS = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
WORDS = pre_tokenizers.WhitespaceSplit()


def check(run: Run) -> None:
    """Refuse a model, sizes, tasks and variants that do not fit."""
    run.refuse_model()
    for name, value in run.sweep.study.items():
        if name not in ("layers", "seen") or not isinstance(value, int) or value < 1:
            raise ValueError(f"study must have layers and seen of at least 1, got {name}={value}")
    task, variant = get_task(run.task), run.variant
    if task.kind not in ("classification", "tagging", "language_modelling"):
        raise ValueError(f"tasks must be of classes, tags or language, got {task.name!r}")
    if variant.options or variant.tune or variant.density:
        raise ValueError("variants must differ in their heads alone")
    build_heads(variant, layers=run.sweep.study.get("layers", 2), heads=HEADS)


def run(run: Run) -> dict[str, Any]:
    """Make a model, train and score it; return its record, with the answers of what is shown."""
    layers, task = run.sweep.study.get("layers", 2), get_task(run.task)
    start = run.folder.with_name(f"{run.folder.name}-start")
    if not (start / "config.json").exists():
        make_start(run, task, layers, start)
    heads = build_heads(run.variant, layers=layers, heads=HEADS)
    own = replace(run, model=str(start))
    record = training.make_record(own, training.train(own, run.folder, heads, from_scratch=True))
    shown = "test" if "test" in record["scores"] else next(iter(record["scores"]))
    answers = {split: both for split, both in record["answers"].items() if split == shown}
    return {**record, "answers": answers}


def make_start(run: Run, task: Task, layers: int, folder: Path) -> None:
    """Write what a run's model is made from: a configuration, and a tokenizer if it needs one."""
    rows = task.load(run.data_dir, ["train"])["train"]
    rows = draw_rows(rows, run.options.get("max_train_samples"), task.group)
    decoder, tokenizer = task.kind == "language_modelling", None
    if task.kind == "tagging":
        texts = [" ".join(words) for words in rows["tokens"]]
    else:
        columns = [name for name in ("text", "text_pair") if name in rows.column_names]
        texts = [text for name in columns for text in rows[name]]
    if not decoder:
        tokenizer = counted_tokenizer(texts, seen=run.sweep.study.get("seen", 2))
    elif task.vocabulary_size is None:
        tokenizer = counted_tokenizer(texts, CHARACTERS)
    write_model(folder, layers, tokenizer, decoder)


def write_model(
    folder: Path, layers: int, tokenizer: PreTrainedTokenizerFast | None, decoder: bool
) -> None:
    """Write a small BERT or Llama and its tokenizer, if any: what ``--from_scratch`` needs."""
    if decoder:  # rotary positions, so of any length
        none = dict.fromkeys(("bos_token_id", "eos_token_id"))
        config: PreTrainedConfig = LlamaConfig(num_hidden_layers=layers, **none, **_SIZES)
    else:
        none = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
        config = BertConfig(num_hidden_layers=layers, max_position_embeddings=128, **none, **_SIZES)
    if tokenizer is not None:
        config.vocab_size, config.pad_token_id = len(tokenizer), tokenizer.pad_token_id
        tokenizer.save_pretrained(folder)
    config.save_pretrained(folder)


def counted_tokenizer(
    texts: Iterable[str], cut: pre_tokenizers.PreTokenizer = WORDS, seen: int = 1
) -> PreTrainedTokenizerFast:
    """Return a tokenizer of what the texts have so often, with BERT's special tokens around it."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = cut
    trainer = trainers.WordLevelTrainer(
        vocab_size=10**6,  # its own limit is 30,000
        min_frequency=seen,
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = ("pad_token", "unk_token", "cls_token", "sep_token")
    special = dict(zip(names, SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
