"""Small models whose weights are all drawn, and tokenizers that know the words of a task."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.tasks.comparisons import ADJECTIVES, NOUNS

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedConfig, PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_MORE, _QUESTION = ">", "?"

FEATURES, HEADS = 64, 4
_INNER = 128  # features between the two maps of a feed-forward layer
_SPREAD = 0.1  # with 0.02, BERT's, or 0.2 an encoder learns to compare names late or never


def layers_of(task: str) -> int | None:
    """The size of the encoder that a cell's task names, as ``"2 layers"``; else None."""
    found = re.fullmatch(r"([1-9]\d?) layers?", task)
    return None if found is None else int(found[1])


def encoder_config(layers: int) -> PreTrainedConfig:
    """Return the configuration of a small BERT."""
    from transformers import BertConfig

    return BertConfig(
        num_hidden_layers=layers,
        hidden_size=FEATURES,
        num_attention_heads=HEADS,
        intermediate_size=_INNER,
        initializer_range=_SPREAD,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=128,
    )


def decoder_config(layers: int) -> PreTrainedConfig:
    """Return the configuration of a small Llama: rotary positions, so of any length."""
    from transformers import LlamaConfig

    return LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=FEATURES,
        num_attention_heads=HEADS,
        intermediate_size=_INNER,
        initializer_range=_SPREAD,
        bos_token_id=None,
        eos_token_id=None,
    )


def write_model(
    folder: Path, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerFast | None = None
) -> None:
    """Write a configuration and its tokenizer, if any, which is what ``from_scratch`` needs."""
    if tokenizer is not None:
        config.vocab_size = len(tokenizer)
        config.pad_token_id = tokenizer.pad_token_id
        tokenizer.save_pretrained(folder)
    config.save_pretrained(folder)


def word_tokenizer(texts: Iterable[str], seen: int = 1) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the words, between white space, that the texts have so often."""
    from tokenizers import pre_tokenizers

    return _tokenizer_of(texts, pre_tokenizers.WhitespaceSplit(), seen)


def character_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the characters of the texts."""
    from tokenizers import Regex, pre_tokenizers

    return _tokenizer_of(texts, pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), 1)


def small_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the texts of :mod:`jat_graph.tasks.comparisons`.

    An adjective and a noun are a token each, "costs more than" is one, and what says nothing is
    left out: a name has two tokens and a sentence five, which halves the time of a training.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

    words = [*SPECIAL, _MORE, _QUESTION, *ADJECTIVES, *NOUNS]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace(Regex("costs? more than"), _MORE),
            normalizers.Replace(Regex(r"\bdoes\b|\."), ""),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return _for_transformers(tokenizer)


def _tokenizer_of(texts: Iterable[str], cut: PreTokenizer, seen: int) -> PreTrainedTokenizerFast:
    """Count the pieces of texts; each that is there so often becomes a token."""
    from tokenizers import Tokenizer, models, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = cut
    most = 10**6  # the trainer's own limit is 30,000
    trainer = trainers.WordLevelTrainer(
        vocab_size=most, min_frequency=seen, special_tokens=list(SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _for_transformers(tokenizer)


def _for_transformers(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Let a tokenizer put BERT's special tokens around a text."""
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    first, last = ((name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.BertProcessing(last, first)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )
