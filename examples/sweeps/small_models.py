"""Small models whose weights are all drawn, and tokenizers that know the words of a task."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, LlamaConfig, PreTrainedConfig, PreTrainedTokenizerFast

from examples.tasks.stepping_stones import ADJECTIVES, NOUNS

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
FEATURES, HEADS = 64, 4
_SIZES = {
    "hidden_size": FEATURES,
    "num_attention_heads": HEADS,
    "intermediate_size": 128,
    "initializer_range": 0.1,  # with 0.02, BERT's, or 0.2 names are compared late or never
}


def layers_of(task: str) -> int | None:
    """Return the size of the encoder that a task of a sweep names, as ``"2 layers"``; else None."""
    found = re.fullmatch(r"([1-9]\d?) layers?", task)
    return None if found is None else int(found[1])


def encoder_config(layers: int) -> PreTrainedConfig:
    """Return the configuration of a small BERT."""
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertConfig(num_hidden_layers=layers, max_position_embeddings=128, **_SIZES, **none)


def decoder_config(layers: int) -> PreTrainedConfig:
    """Return the configuration of a small Llama: rotary positions, so of any length."""
    return LlamaConfig(num_hidden_layers=layers, bos_token_id=None, eos_token_id=None, **_SIZES)


def write_model(
    folder: Path, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast | None = None
) -> None:
    """Write a configuration and its tokenizer, if any: what ``--from_scratch`` needs."""
    if tokenizer is not None:
        config.vocab_size, config.pad_token_id = len(tokenizer), tokenizer.pad_token_id
        tokenizer.save_pretrained(folder)
    config.save_pretrained(folder)


def word_tokenizer(texts: Iterable[str], seen: int = 1) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the words, between white space, that the texts have so often."""
    return _counted(texts, pre_tokenizers.WhitespaceSplit(), seen)


def character_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the characters of the texts."""
    return _counted(texts, pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), 1)


def _counted(
    texts: Iterable[str], cut: pre_tokenizers.PreTokenizer, seen: int
) -> PreTrainedTokenizerFast:
    """Count the pieces of texts; each that is there so often becomes a token."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = cut
    trainer = trainers.WordLevelTrainer(
        vocab_size=10**6,  # its own limit is 30,000
        min_frequency=seen,
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _for_transformers(tokenizer)


def comparison_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the texts of stepping stones.

    An adjective and a noun are a token each, "costs more than" is one, and what says nothing is
    left out: a name has two tokens and a sentence five, which halves the time of a training.
    """
    words = [*SPECIAL, ">", "?", *ADJECTIVES, *NOUNS]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace(Regex("costs? more than"), ">"),
            normalizers.Replace(Regex(r"\bdoes\b|\."), ""),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return _for_transformers(tokenizer)


def _for_transformers(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Let a tokenizer put BERT's special tokens around a text."""
    first, last = ((name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.BertProcessing(last, first)
    names = ("pad_token", "unk_token", "cls_token", "sep_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **dict(zip(names, SPECIAL, strict=True))
    )
