"""Small models whose weights are all drawn, and tokenizers that know the words of a task."""

from __future__ import annotations

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
CHARACTERS = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
WORDS = pre_tokenizers.WhitespaceSplit()


def write_model(
    folder: Path, layers: int, tokenizer: PreTrainedTokenizerFast | None, decoder: bool = False
) -> None:
    """Write a small BERT or Llama and its tokenizer, if any: what ``--from_scratch`` needs."""
    config: PreTrainedConfig
    if decoder:  # rotary positions, so of any length
        none = dict.fromkeys(("bos_token_id", "eos_token_id"))
        config = LlamaConfig(num_hidden_layers=layers, **none, **_SIZES)
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
    """Return a tokenizer of the words or characters that the texts have so often."""
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
    """Return a tokenizer of stepping stones: a name has two tokens and a sentence five."""
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
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = ("pad_token", "unk_token", "cls_token", "sep_token")
    special = dict(zip(names, SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
