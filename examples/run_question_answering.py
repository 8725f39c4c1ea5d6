"""Train and evaluate a model that finds answers as pieces of a text, as in SQuAD.

``python -m examples.run_question_answering --model_name_or_path M --task_name squad --data_dir DIR
--do_train --do_eval --output_dir O``, or with files of your own in JSON lines, with the columns
``question``, ``context`` and ``answers``, of which each has lists ``text`` and ``answer_start``.
A context that is longer than ``--max_length`` is read in windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForQuestionAnswering, PreTrainedTokenizerBase

from examples.arguments import DataArguments, finished_run, parse_arguments, run_script
from examples.data import load_splits, load_task
from examples.options import option
from examples.tasks import Task
from examples.tasks.metrics import score_answers, score_doubted_answers
from examples.training import GLOBAL, Answers, Encoded, load_config, load_tokenizer, run_trainer

_NOT_HERE = 0  # a window without the answer points at its first token, which BERT's is for
_NOWHERE = (-1, -1)  # where an answer stands that no window holds, in characters


@dataclass
class QuestionArguments(DataArguments):
    """The data: questions about texts."""

    question_column: str = option("Column with questions.", "question")
    context_column: str = option("Column with texts.", "context")
    answer_column: str = option("Column with answers.", "answers")
    doc_stride: int = option("Tokens that neighbouring windows of a text share.", 128)
    global_question: bool = option(
        "The question's tokens see all, and all see them: for heads with clusters, or --jat_set "
        "pattern=window:256+global.",
        False,
    )


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Train and evaluate as the arguments say, those of the command line where there are none."""
    model, data, args = parse_arguments(arguments, QuestionArguments)
    if (results := finished_run(args)) is not None:
        return results
    task = load_task(data, "question_answering")
    columns = {data.question_column: "question", data.context_column: "context"}
    splits = load_splits(data, task, args, {**columns, data.answer_column: "answers"})
    tokenizer = load_tokenizer(model)
    cut: dict[str, Any] = {
        "tokenizer": tokenizer,
        "max_length": data.max_length,
        "stride": data.doc_stride,
        "global_question": data.global_question,
    }
    longest = task.longest_answer if task else 128
    return run_trainer(
        *(model, data, args, AutoModelForQuestionAnswering, load_config(model)),
        encoded={name: encode_windows(rows, **cut) for name, rows in splits.items()},
        judge=partial(judge, longest=longest, task=task),
        metric="f1",
        tokenizer=tokenizer,
        collate=partial(collate_windows, tokenizer=tokenizer),
        preprocess_logits_for_metrics=first_two_outputs,
    )


def encode_windows(
    rows: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    stride: int,
    global_question: bool = False,
) -> Encoded:
    """Cut contexts into windows; nothing is lost but answers longer than a stride."""
    questions = [question.strip() for question in rows["question"]]  # some are mostly blanks
    longest = max(map(len, tokenizer(questions, add_special_tokens=False)["input_ids"]))
    needed = longest + tokenizer.num_special_tokens_to_add(pair=True) + stride + 1
    if max_length < needed:
        raise ValueError(
            f"max_length must be at least {needed} for questions of {longest} tokens and "
            f"doc_stride={stride}, got {max_length}"
        )
    found = tokenizer(
        questions,
        [*rows["context"]],
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    owners, offsets = found.pop("overflow_to_sample_mapping"), found.pop("offset_mapping")
    # The characters that each token stands for; (0, 0) outside of the context.
    parts = [np.array(found.sequence_ids(window)) for window in range(len(offsets))]
    spans = [
        np.where((own == 1)[:, None], np.asarray(offset, np.int32), np.int32(0))
        for own, offset in zip(parts, offsets, strict=True)
    ]
    answers = [
        (answer["answer_start"][0], answer["answer_start"][0] + len(answer["text"][0]))
        if answer["text"]
        else _NOWHERE
        for answer in rows["answers"]
    ]
    found_at = [
        find_tokens(span, *answers[owner]) for span, owner in zip(spans, owners, strict=True)
    ]
    starts, ends = zip(*found_at, strict=True)
    features = {**found, "start_positions": starts, "end_positions": ends}
    if global_question:
        features[GLOBAL] = [(own == 0).astype(int).tolist() for own in parts]
    return Encoded(Dataset.from_dict(features), rows, (owners, spans))


def find_tokens(spans: NDArray[np.int32], start: int, stop: int) -> tuple[int, int]:
    """The first and last token of a piece of the context, if the window holds all of it."""
    context = np.flatnonzero(spans[:, 1] > 0)
    inside = np.flatnonzero((spans[:, 1] > start) & (spans[:, 0] < stop) & (spans[:, 1] > 0))
    if len(inside) == 0 or spans[context[0], 0] > start or spans[context[-1], 1] < stop:
        return _NOT_HERE, _NOT_HERE
    return int(inside[0]), int(inside[-1])


def collate_windows(
    rows: list[dict[str, Any]], tokenizer: PreTrainedTokenizerBase
) -> dict[str, Tensor]:
    """Pad on the right, whatever the tokenizer prefers: answers are counted from the left."""
    others = [{name: value for name, value in row.items() if name != GLOBAL} for row in rows]
    batch = dict(tokenizer.pad(others, padding_side="right", return_tensors="pt"))
    if GLOBAL in rows[0]:  # of which most tokenizers do not know
        masks = pad_sequence([torch.tensor(row[GLOBAL]) for row in rows], batch_first=True)
        batch[GLOBAL] = F.pad(masks, (0, batch["input_ids"].size(1) - masks.size(1)))
    return batch


def first_two_outputs(outputs: Any, labels: Any) -> Any:
    """Keep the scores of first and last tokens."""
    return tuple(scores.float() for scores in outputs[:2])


def judge(
    predictions: Any, labels: Any, split: Encoded, longest: int, task: Task | None
) -> tuple[dict[str, float], Answers]:
    """The best piece of all windows of a context beside the right ones.

    Where some questions have no answer, beside it is the lowest score of "not in this window", that
    of the first token, less the piece's.
    """
    best = [(-np.inf, 0, 0)] * len(split.rows)
    nothing = [np.inf] * len(split.rows)
    for owner, spans, starts, ends in zip(*split.notes, *predictions, strict=True):
        found, first, last = find_best(starts, ends, spans[:, 1] > 0, longest)
        none = float(starts[_NOT_HERE] + ends[_NOT_HERE])
        if found > best[owner][0]:
            best[owner] = (found, int(spans[first, 0]), int(spans[last, 1]))
        nothing[owner] = min(nothing[owner], none)
    contexts = split.rows["context"]
    texts = [text[start:stop] for text, (_, start, stop) in zip(contexts, best, strict=True)]
    right = [[*answers["text"]] for answers in split.rows["answers"]]
    may_lack = not all(right) if task is None else "best_f1" in task.metrics
    score = score_doubted_answers if may_lack else score_answers
    doubts = [none - found for none, (found, _, _) in zip(nothing, best, strict=True)]
    said: list[Any] = [[*pair] for pair in zip(texts, doubts, strict=True)] if may_lack else texts
    return (task.measure if task else score)(said, right), {"said": said, "right": right}


def find_best(
    starts: NDArray[Any], ends: NDArray[Any], context: NDArray[np.bool_], longest: int
) -> tuple[float, int, int]:
    """The highest sum of two scores, and its first and last token."""
    length = len(context)
    first = np.where(context, starts[:length], -np.inf)
    last = np.pad(
        np.where(context, ends[:length], -np.inf), (0, longest - 1), constant_values=-np.inf
    )
    sums = first[:, None] + np.lib.stride_tricks.sliding_window_view(last, longest)
    best, distance = np.unravel_index(int(sums.argmax()), sums.shape)
    return float(sums[best, distance]), int(best), int(best + distance)


if __name__ == "__main__":
    run_script("run_question_answering", main)
