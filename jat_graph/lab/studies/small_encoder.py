"""Small encoders whose weights are all drawn, and a tokenizer that knows the words of a task."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.tasks.comparisons import ADJECTIVES, NOUNS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_MORE, _QUESTION = ">", "?"

HEADS = 4


def layers_of(task: str) -> int | None:
    """The size of the encoder that a cell's task names, as ``"2 layers"``; else None."""
    found = re.fullmatch(r"([1-9]\d?) layers?", task)
    return None if found is None else int(found[1])


def write_encoder(folder: Path, layers: int) -> None:
    """Write the configuration of a small BERT and its tokenizer, which ``from_scratch`` needs."""
    from transformers import BertConfig

    tokenizer = small_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=layers,
        hidden_size=64,
        num_attention_heads=HEADS,
        intermediate_size=128,
        initializer_range=0.1,  # with 0.02, BERT's, or 0.2 it learns to compare names late or never
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
    )
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def small_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the texts of :mod:`jat_graph.tasks.comparisons`.

    An adjective and a noun are a token each, "costs more than" is one, and what says nothing is
    left out: a name has two tokens and a sentence five, which halves the time of a training.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

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
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )
