"""Answers as pieces of a long context, which is read in windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from jat_graph.tasks import QuestionTask
from jat_graph.training.objectives.base import Encoded, Objective, draw

if TYPE_CHECKING:
    from datasets import Dataset

_LONGEST_ANSWER = 128  # tokens
_NOT_HERE = 0  # a window without the answer points at its first token, which BERT's is for


class QuestionAnswering(Objective[QuestionTask]):
    """Question and context in windows of ``max_length`` tokens that share ``stride`` of them."""

    auto_class: ClassVar[str] = "AutoModelForQuestionAnswering"
    architectures: ClassVar[str] = "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES"
    wanted: ClassVar[str] = "model for question answering"
    labels: ClassVar[tuple[str, ...]] = ("start_positions", "end_positions")

    def encode(self, rows: Dataset, limit: int | None) -> Encoded:
        """Cut contexts into windows; nothing is lost but answers longer than a stride."""
        from datasets import Dataset

        rows = draw(rows, limit)
        self._check_room(rows)
        found = self.tokenizer(
            list(rows["question"]),
            list(rows["context"]),
            truncation="only_second",
            max_length=self.options.max_length,
            stride=self.options.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        owners, offsets = found.pop("overflow_to_sample_mapping"), found.pop("offset_mapping")
        spans = [_context_only(offsets[i], found.sequence_ids(i)) for i in range(len(offsets))]
        answers = [_first_answer(answer) for answer in rows["answers"]]
        places = [_place(span, *answers[owner]) for span, owner in zip(spans, owners, strict=True)]
        starts, ends = zip(*places, strict=True)
        features = {**found, "start_positions": starts, "end_positions": ends}
        return Encoded(Dataset.from_dict(features), rows, {"owners": owners, "spans": spans})

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """Pad on the right, whatever the tokenizer prefers: pointers count from the left."""
        return dict(self.tokenizer.pad(rows, padding_side="right", return_tensors="pt"))

    def reduce(self, outputs: Any, labels: Any) -> Any:
        """Keep the scores of first and last tokens."""
        return tuple(scores.float() for scores in outputs[:2])

    def score(self, predictions: Any, labels: Any, split: Encoded) -> dict[str, float]:
        """Compare the best piece of all windows of a context with the right answers."""
        best = [(-np.inf, 0, 0)] * len(split.rows)
        windows = zip(split.notes["owners"], split.notes["spans"], *predictions, strict=True)
        for owner, spans, starts, ends in windows:
            found, first, last = _best_piece(starts, ends, spans[:, 1] > 0)
            if found > best[owner][0]:
                best[owner] = (found, int(spans[first, 0]), int(spans[last, 1]))
        said = {
            row["id"]: row["context"][start:stop]
            for row, (_, start, stop) in zip(split.rows, best, strict=True)
        }
        right = {row["id"]: row["answers"]["text"] for row in split.rows}
        return self.task.compute_metrics(said, right)

    def _check_room(self, rows: Dataset) -> None:
        """Refuse windows that a question fills; the tokenizer's own words would not help."""
        questions = self.tokenizer(list(rows["question"]), add_special_tokens=False)["input_ids"]
        longest = max(len(question) for question in questions)
        special = self.tokenizer.num_special_tokens_to_add(pair=True)
        needed = longest + special + self.options.stride + 1
        if self.options.max_length < needed:
            raise ValueError(
                f"max_length must be at least {needed} for questions of {longest} tokens and "
                f"stride={self.options.stride}, got {self.options.max_length}"
            )


def _context_only(offsets: list[tuple[int, int]], sequence: list[int | None]) -> NDArray[np.int32]:
    """Return the characters that each token stands for; (0, 0) outside of the context."""
    context = np.array([part == 1 for part in sequence])
    return np.where(context[:, None], np.asarray(offsets, np.int32), np.int32(0))


def _first_answer(answers: dict[str, list[Any]]) -> tuple[int, int]:
    """Return where the first right answer begins and stops, in characters."""
    start, text = answers["answer_start"][0], answers["text"][0]
    return start, start + len(text)


def _place(spans: NDArray[np.int32], start: int, stop: int) -> tuple[int, int]:
    """Return the first and last token of a piece of the context, if the window holds all of it."""
    context = np.flatnonzero(spans[:, 1] > 0)
    inside = np.flatnonzero((spans[:, 1] > start) & (spans[:, 0] < stop) & (spans[:, 1] > 0))
    if len(inside) == 0 or spans[context[0], 0] > start or spans[context[-1], 1] < stop:
        return _NOT_HERE, _NOT_HERE
    return int(inside[0]), int(inside[-1])


def _best_piece(
    starts: NDArray[np.floating[Any]], ends: NDArray[np.floating[Any]], context: NDArray[np.bool_]
) -> tuple[float, int, int]:
    """Return the highest sum of two scores, and its first and last token."""
    length = len(context)
    first = np.where(context, starts[:length], -np.inf)
    last = np.pad(
        np.where(context, ends[:length], -np.inf),
        (0, _LONGEST_ANSWER - 1),
        constant_values=-np.inf,
    )
    sums = first[:, None] + np.lib.stride_tricks.sliding_window_view(last, _LONGEST_ANSWER)
    best, distance = np.unravel_index(int(sums.argmax()), sums.shape)
    return float(sums[best, distance]), int(best), int(best + distance)
