"""Train and evaluate a classifier of texts, of pairs, or of choices; or a regression.

``python -m examples.run_classification --model_name_or_path M --task_name rte --data_dir DIR
--jat_preset stones --do_train --do_eval --output_dir O``, or with files of your own:
``--train_file mine.csv --validation_file … --text_column … --label_column …``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import pandas as pd
from datasets import ClassLabel, Dataset, Value
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    DataCollatorForMultipleChoice,
    DataCollatorWithPadding,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from examples.arguments import DataArguments, finished_run, parse_arguments, run_script
from examples.data import load_splits, load_task
from examples.options import option
from examples.own_rows import as_numbers
from examples.tasks import Splits, Task
from examples.tasks.metrics import score_classes, score_numbers
from examples.training import Answers, Encoded, load_config, load_tokenizer, run_trainer, tokenize

logger = logging.getLogger(__name__)


@dataclass
class ClassificationArguments(DataArguments):
    """The data: texts with labels."""

    text_column: str = option("Column with the text.", "text")
    text_pair_column: str | None = option("Column with the other text of a pair.", None)
    label_column: str = option(
        "Column with a class, as it is written, or a number to predict; of one type.", "label"
    )
    do_regression: bool | None = option(
        "Predict numbers. Default: if all labels are numbers, some with a fraction.", None
    )


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train and evaluate as the arguments say, those of the command line where there are none."""
    model, data, args = parse_arguments(arguments, ClassificationArguments)
    if (results := finished_run(args)) is not None:
        return results
    task = load_task(data, "classification")
    columns = {data.text_column: "text", data.label_column: "label"}
    splits = load_splits(data, task, args, {**columns, data.text_pair_column: "text_pair"})
    tokenizer = load_tokenizer(model)
    config = load_config(model, pad_token_id=tokenizer.pad_token_id)
    if task is None:
        splits = with_classes(splits, data.do_regression, config)
    label = next(iter(splits.values())).features["label"]
    cut: dict[str, Any] = {"tokenizer": tokenizer, "max_length": data.max_length}
    encode, auto_class = partial(encode_texts, **cut), AutoModelForSequenceClassification
    collate: Any = DataCollatorWithPadding(tokenizer)
    if "choices" in next(iter(splits.values())).column_names:
        encode, auto_class = partial(encode_choices, **cut), AutoModelForMultipleChoice
        collate = DataCollatorForMultipleChoice(tokenizer)
    elif isinstance(label, ClassLabel):
        config.problem_type = "single_label_classification"
        config.id2label = dict(enumerate(label.names))
        config.label2id = {name: number for number, name in enumerate(label.names)}
    else:
        config.num_labels, config.problem_type = 1, "regression"
    is_class = isinstance(label, ClassLabel)
    return run_trainer(
        *(model, data, args, auto_class, config),
        encoded={name: encode(rows) for name, rows in splits.items()},
        judge=partial(judge, task=task, is_regression=not is_class),
        metric=task.primary_metric if task else "accuracy" if is_class else "pearson",
        tokenizer=tokenizer,
        collate=collate,
        preprocess_logits_for_metrics=first_output,
    )


def with_classes(splits: Splits, asked: bool | None, config: PreTrainedConfig) -> Splits:
    """Own rows with numbers to predict, or with classes, which are those that are trained on."""
    kind = next(iter(splits.values())).features["label"]
    if isinstance(kind, ClassLabel) and not asked:
        return splits
    numbers = {name: read_numbers(rows, name) for name, rows in splits.items()}
    is_float = isinstance(kind, Value) and kind.dtype.startswith(("float", "double"))
    fractions = is_float or any(x % 1 for own in numbers.values() for x in own or ())
    if asked or (asked is None and fractions and None not in numbers.values()):
        return {name: with_numbers(rows, name, numbers[name]) for name, rows in splits.items()}
    splits = {name: rows.cast_column("label", Value("string")) for name, rows in splits.items()}
    if "train" in splits:
        found = sorted(splits["train"].unique("label"))
        ordered = as_numbers(found)
        classes = found if ordered is None else sorted(found, key=float)
        if len(classes) == 1:
            raise ValueError(f"labels must be of two classes or more, got {classes[0]!r} alone")
        if asked is None and len(classes) > 2 and ordered is not None:
            said = "labels %s are classes without an order; --do_regression true predicts numbers"
            logger.warning(said, ", ".join(classes))
    else:
        classes = [config.id2label[number] for number in sorted(config.id2label)]
    for name, rows in splits.items():
        others = {*rows.unique("label")} - {*classes}
        if others:
            got = f"{', '.join(classes)}, got {min(others)!r}"
            raise ValueError(f"labels of the {name} data must be among {got}")
    return {
        name: rows.cast_column("label", ClassLabel(names=classes)) for name, rows in splits.items()
    }


def read_numbers(rows: Dataset, split: str) -> list[float] | None:
    """Labels as numbers; None where one is no number."""
    labels = rows["label"][:]
    if None in labels:
        number = labels.index(None)
        raise ValueError(f"row {number} of the {split} data must have a label, got None")
    return as_numbers(map(str, labels))


def with_numbers(rows: Dataset, split: str, numbers: list[float] | None) -> Dataset:
    """Rows whose labels are these numbers."""
    if numbers is None:
        other = next(x for x in rows["label"] if as_numbers([str(x)]) is None)
        raise ValueError(f"labels of the {split} data must be numbers, got {other!r}")
    made = rows.remove_columns("label").add_column("label", numbers)
    return made.cast_column("label", Value("float32"))


def encode_texts(rows: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Encoded:
    """Tokens of each text or pair, whose longer text is cut first."""
    texts = [[*rows[name]] for name in ("text", "text_pair") if name in rows.column_names]
    found = tokenize(tokenizer, texts, max_length)
    return Encoded(Dataset.from_dict({**found, "labels": [*rows["label"]]}), rows)


def encode_choices(rows: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Encoded:
    """Tokens of each choice, the text before it: lists ``[C][L]`` for C choices, as GPT has it."""
    count = len(rows[0]["choices"])
    prompts = [text for text in rows["text"] for _ in range(count)]
    choices = [*chain.from_iterable(rows["choices"])]
    found = tokenize(tokenizer, [prompts, choices], max_length)
    folded = {
        name: [values[first : first + count] for first in range(0, len(values), count)]
        for name, values in found.items()
    }
    return Encoded(Dataset.from_dict({**folded, "labels": [*rows["label"]]}), rows)


def first_output(outputs: Any, labels: Any) -> Any:
    """Keep the scores of the classes: hidden states would fill the memory."""
    return outputs[0] if isinstance(outputs, tuple) else outputs


def judge(
    predictions: Any, labels: Any, split: Encoded, task: Task | None, is_regression: bool
) -> tuple[dict[str, float], Answers]:
    """The classes that were said, or the outputs, beside what is right, one entry an example."""
    rows = split.rows
    outputs = predictions.reshape(-1).astype(float) if is_regression else predictions.argmax(1)
    said: list[Any] = outputs.tolist()
    right: list[Any] = [*rows["label"]]
    if task is None:
        classes = partial(score_classes, names=("accuracy", "macro_f1"))
        scores = (score_numbers if is_regression else classes)(said, right)
        return scores, {"said": said, "right": right}
    if task.by is not None:
        right = [[label, size] for label, size in zip(right, rows[task.by], strict=True)]
    if task.group is not None:
        table = pd.DataFrame({"said": said, "right": right}).groupby(
            [*rows[task.group]], sort=False
        )
        said, right = (table[side].agg(list).tolist() for side in ("said", "right"))
    return task.measure(said, right), {"said": said, "right": right}


if __name__ == "__main__":
    run_script("run_classification", main)
