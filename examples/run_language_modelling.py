"""Train and evaluate a decoder that predicts the next token of texts, or an encoder masked ones.

``python -m examples.run_language_modelling --model_name_or_path M --task_name tinyshakespeare
--data_dir DIR --do_train --do_eval --output_dir O``, or with files of your own: ``--train_file
mine.txt``, one document, or CSV or JSON lines with a document a row in ``--text_column``.
Blocks of ``--max_length`` tokens begin with the last token of the one before, so that each token of
a document but the first is said exactly once. With ``--masked 0.3`` an encoder says three in ten
tokens, drawn anew each time, from all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerBase,
)

from examples.arguments import DataArguments, finished_run, parse_arguments, run_script
from examples.data import draw_rows, load_splits, load_task
from examples.options import option
from examples.tasks.metrics import score_losses
from examples.training import Encoded, load_config, load_tokenizer, run_trainer

_NO_LABEL = -100


@dataclass
class LanguageArguments(DataArguments):
    """The data: documents. Limits of samples are of blocks, since documents may be few."""

    text_column: str = option("Column with documents.", "text")
    masked: float = option("Share of tokens to say from all others; 0 for each next one.", 0.0)


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train and evaluate as the arguments say, those of the command line where there are none."""
    model, data, args = parse_arguments(arguments, LanguageArguments)
    if (results := finished_run(args)) is not None:
        return results
    if not 0 <= data.masked < 1:
        raise ValueError(f"masked must be from 0 on and below 1, got {data.masked}")
    if data.max_length < 2:
        raise ValueError(f"max_length must be at least 2 to predict tokens, got {data.max_length}")
    task = load_task(data, "language_modelling")
    limits = {"train": data.max_train_samples}
    other = data.max_eval_samples
    data.max_train_samples = data.max_eval_samples = None
    splits = load_splits(data, task, args, {data.text_column: "text"})
    size = task.vocabulary_size if task else None
    tokenizer = load_tokenizer(model) if size is None else None
    encoded = {
        name: encode_blocks(rows, name, tokenizer, data.max_length, limits.get(name, other))
        for name, rows in splits.items()
    }
    wanted = size or len(tokenizer or ())
    settings: dict[str, Any] = {"vocab_size": wanted} if model.from_scratch else {}
    if model.from_scratch and size is not None:
        settings |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config = load_config(model, **settings)
    if config.vocab_size < wanted:
        raise ValueError(f"the model must know {wanted} tokens, got {config.vocab_size}")
    metrics = ["perplexity", f"bits_per_{'token' if size else 'character'}"]
    auto_class, collate = AutoModelForCausalLM, collate_blocks
    if data.masked:
        if getattr(tokenizer, "mask_token", None) is None:
            raise ValueError("masked needs a tokenizer with a token for what is masked, got none")
        auto_class, metrics = AutoModelForMaskedLM, metrics[:1]
        mask = {"mlm_probability": data.masked, "seed": args.seed}
        collate = partial(mask_blocks, DataCollatorForLanguageModeling(tokenizer, **mask))
    return run_trainer(
        *(model, data, args, auto_class, config, encoded),
        judge=partial(judge, metrics=metrics),
        metric=task.primary_metric if task and not data.masked else "perplexity",
        tokenizer=tokenizer,
        collate=collate,
        preprocess_logits_for_metrics=partial(token_losses, shift=0 if data.masked else 1),
    )


def encode_blocks(
    rows: Dataset,
    split: str,
    tokenizer: PreTrainedTokenizerBase | None,
    max_length: int,
    limit: int | None,
) -> Encoded:
    """Cut documents into blocks, and count the characters (or tokens) that each is asked for."""
    if tokenizer is None:
        documents = [(tokens, [1] * len(tokens)) for tokens in rows["tokens"]]
    else:
        found = tokenizer(
            [*rows["text"]], add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        # White space between two tokens is the second one's.
        ends = [[end for _, end in offsets] for offsets in found["offset_mapping"]]
        units = [np.diff(stops, prepend=0).tolist() for stops in ends]
        documents = [*zip(found["input_ids"], units, strict=True)]
    blocks = [
        {
            "input_ids": tokens[start : start + max_length],
            "units": sum(counts[start + 1 : start + max_length]),
        }
        for tokens, counts in documents
        for start in range(0, len(tokens) - 1, max_length - 1)
    ]
    if not blocks:
        most = max((len(tokens) for tokens, _ in documents), default=0)
        raise ValueError(f"the {split} data must have a text of two tokens or more, got {most}")
    drawn = draw_rows(Dataset.from_list(blocks), limit)
    return Encoded(drawn.remove_columns("units"), drawn, sum(drawn["units"]))


def collate_blocks(rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Pad on the right; what is padding is no label."""
    blocks = [torch.tensor(row["input_ids"]) for row in rows]
    tokens = pad_sequence(blocks, batch_first=True)
    real = pad_sequence([torch.ones_like(block) for block in blocks], batch_first=True)
    labels = tokens.masked_fill(real == 0, _NO_LABEL)
    return {"input_ids": tokens, "attention_mask": real, "labels": labels}


def mask_blocks(mask: Any, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Pad on the right, and mask some tokens, which alone are labels."""
    blocks = collate_blocks(rows)
    special = blocks["attention_mask"] == 0
    tokens, labels = mask.torch_mask_tokens(blocks["input_ids"], special_tokens_mask=special)
    return blocks | {"input_ids": tokens, "labels": labels}


def token_losses(outputs: Any, labels: Any, *, shift: int) -> Any:
    """Keep the loss of each token in place of scores of the whole vocabulary."""
    logits = outputs[0] if isinstance(outputs, tuple) else outputs
    labels = labels[:, shift:]
    if logits.dim() == 2:  # of labelled tokens alone, as ModernBERT has them
        losses = torch.zeros(labels.shape, device=labels.device)
        asked = labels != _NO_LABEL
        losses[asked] = functional.cross_entropy(logits.float(), labels[asked], reduction="none")
        return losses
    logits = logits[:, : labels.size(1)]
    return functional.cross_entropy(logits.transpose(1, 2).float(), labels, reduction="none")


def judge(
    predictions: Any, labels: Any, split: Encoded, metrics: Sequence[str]
) -> tuple[dict[str, float], None]:
    """Summarise how surprised the model was by all tokens."""
    losses = predictions[labels[:, labels.shape[1] - predictions.shape[1] :] != _NO_LABEL]
    scores = score_losses(losses, split.notes)
    return {name: scores[name] for name in metrics}, None


if __name__ == "__main__":
    run_script("run_language_modelling", main)
