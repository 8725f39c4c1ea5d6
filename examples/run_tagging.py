"""Train and evaluate a tagger of words: named entities, parts of speech, or your own tags.

``python -m examples.run_tagging --model_name_or_path M --task_name wnut17 --data_dir DIR
--do_train --do_eval --output_dir O``, or with files of your own in JSON lines, whose columns
``tokens`` and ``tags`` have the words of a sentence and a tag of each. In a CSV file words and tags
are parted by blanks. Tags that all begin with ``B-`` or ``I-``, or are ``O``, are spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from datasets import ClassLabel, Dataset
from transformers import (
    AutoModelForTokenClassification,
    BatchEncoding,
    DataCollatorForTokenClassification,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from examples.arguments import DataArguments, finished_run, parse_arguments, run_script
from examples.data import load_splits, load_task
from examples.options import option
from examples.tasks import Splits, Task
from examples.tasks.base import tag_rows
from examples.tasks.metrics import OUTSIDE, find_spans, score_classes, score_spans
from examples.training import Answers, Encoded, load_config, load_tokenizer, run_trainer, tokenize

_NO_LABEL = -100
_UNREAD = -1  # the number of no tag


@dataclass
class TaggingArguments(DataArguments):
    """The data: sentences of words with tags."""

    text_column: str = option("Column with words.", "tokens")
    label_column: str = option("Column with a tag for each word.", "tags")


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train and evaluate as the arguments say, those of the command line where there are none."""
    model, data, args = parse_arguments(arguments, TaggingArguments)
    if (results := finished_run(args)) is not None:
        return results
    task = load_task(data, "tagging")
    columns: dict[str | None, str] = {data.text_column: "tokens", data.label_column: "tags"}
    splits = load_splits(data, task, args, columns)
    config = load_config(model)
    if task is None:
        splits = with_tags(splits, config)
    tags = next(iter(splits.values())).features["tags"].feature.names
    config.id2label = dict(enumerate(tags))
    config.label2id = {tag: number for number, tag in enumerate(tags)}
    tokenizer = load_tokenizer(model)
    has_spans = all(tag == OUTSIDE or tag[:2] in ("B-", "I-") for tag in tags)
    collate: Any = DataCollatorForTokenClassification(tokenizer)
    cut: dict[str, Any] = {"tokenizer": tokenizer, "max_length": data.max_length}
    return run_trainer(
        *(model, data, args, AutoModelForTokenClassification, config),
        encoded={name: encode_words(rows, **cut) for name, rows in splits.items()},
        judge=partial(judge, tags=tags, has_spans=has_spans, task=task),
        metric="f1" if has_spans else "accuracy",
        tokenizer=tokenizer,
        collate=collate,
        preprocess_logits_for_metrics=best_tags,
    )


def with_tags(splits: Splits, config: PreTrainedConfig) -> Splits:
    """Own rows with numbers of tags, which are those that are trained on."""
    if isinstance(next(iter(splits.values())).features["tags"].feature, ClassLabel):
        return splits
    if "train" in splits:
        found = {tag for own in splits["train"]["tags"] for tag in own}
        tags = sorted(found, key=lambda tag: (tag != OUTSIDE, tag))
    else:
        tags = [config.id2label[number] for number in sorted(config.id2label)]
    return {
        name: tag_rows([*zip(rows["tokens"], rows["tags"], strict=True)], tags)
        for name, rows in splits.items()
    }


def encode_words(rows: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Encoded:
    """Tokens of words that blanks join; the first of each word is told its tag, others none."""
    sentences = [*rows["tokens"]]
    found = tokenize(tokenizer, [[" ".join(words) for words in sentences]], max_length)
    firsts = [first_tokens(found, row, words) for row, words in enumerate(sentences)]
    labels = [[_NO_LABEL] * len(ids) for ids in found["input_ids"]]
    for own, tokens, tags in zip(labels, firsts, rows["tags"], strict=True):
        for token, tag in zip(tokens, tags, strict=True):
            if token is not None:
                own[token] = tag
    return Encoded(Dataset.from_dict({**found, "labels": labels}), rows, firsts)


def first_tokens(found: BatchEncoding, row: int, words: Sequence[str]) -> list[int | None]:
    """The first token of each word; None where all of it is cut off."""
    tokens, start = [], 0
    for word in words:
        places = (found.char_to_token(row, place) for place in range(start, start + len(word)))
        tokens.append(next((token for token in places if token is not None), None))
        start += len(word) + 1
    return tokens


def best_tags(outputs: Any, labels: Any) -> Any:
    """Keep the best tag of each token."""
    return (outputs[0] if isinstance(outputs, tuple) else outputs).argmax(-1)


def judge(
    predictions: Any,
    labels: Any,
    split: Encoded,
    tags: list[str],
    has_spans: bool,
    task: Task | None,
) -> tuple[dict[str, float], Answers]:
    """Spans, or numbers of tags, beside what is right; words that are cut off have none."""
    said = [
        [_UNREAD if token is None else int(predictions[row, token]) for token in tokens]
        for row, tokens in enumerate(split.notes)
    ]
    right = [[*own] for own in split.rows["tags"]]
    if has_spans:
        said, right = (
            [find_spans([OUTSIDE if n == _UNREAD else tags[n] for n in own]) for own in side]
            for side in (said, right)
        )
    score = score_spans if has_spans else score_classes
    return (task.measure if task else score)(said, right), {"said": said, "right": right}


if __name__ == "__main__":
    run_script("run_tagging", main)
