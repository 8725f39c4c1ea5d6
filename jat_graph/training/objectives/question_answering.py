"""Answers as pieces of a long context, which is read in windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from jat_graph.tasks import QuestionTask
from jat_graph.training.objectives.base import Answering, Answers, Encoded, draw

if TYPE_CHECKING:
    from datasets import Dataset

_NOT_HERE = 0  # a window without the answer points at its first token, which BERT's is for

# Where a piece that no window holds stands, in characters.
_NOWHERE = (-1, -1)


class QuestionAnswering(Answering[QuestionTask]):
    """Question and context in windows of ``max_length`` tokens that share ``stride`` of them."""

    auto_class: ClassVar[str] = "AutoModelForQuestionAnswering"
    architectures: ClassVar[str] = "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES"
    wanted: ClassVar[str] = "model for question answering"
    labels: ClassVar[tuple[str, ...]] = ("start_positions", "end_positions")

    def encode(self, rows: Dataset, limit: int | None) -> Encoded:
        """Cut contexts into windows; nothing is lost but answers longer than a stride."""
        from datasets import Dataset

        rows = draw(rows, limit)
        questions = [question.strip() for question in rows["question"]]  # some are mostly blanks
        self._check_room(questions)
        found = self.tokenizer(
            questions,
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

    def answers(self, predictions: Any, labels: Any, split: Encoded) -> Answers:
        """The best piece of all windows of a context.

        Where a question may have no answer, beside it by how much the model rather says so: the
        lowest score of "not in this window", which is that of the first token, less the piece's.
        """
        best = [(-np.inf, 0, 0)] * len(split.rows)
        nothing = [np.inf] * len(split.rows)
        windows = zip(split.notes["owners"], split.notes["spans"], *predictions, strict=True)
        for owner, spans, starts, ends in windows:
            context = spans[:, 1] > 0
            found, first, last = _best_piece(starts, ends, context, self.task.longest_answer)
            none = float(starts[_NOT_HERE] + ends[_NOT_HERE])
            if not np.isfinite(found + none):
                got = none if np.isfinite(found) else found
                raise ValueError(f"the model's scores of tokens must be finite, got {got}")
            if found > best[owner][0]:
                best[owner] = (found, int(spans[first, 0]), int(spans[last, 1]))
            nothing[owner] = min(nothing[owner], none)
        texts = [
            row["context"][start:stop]
            for row, (_, start, stop) in zip(split.rows, best, strict=True)
        ]
        doubts = [none - found for none, (found, _, _) in zip(nothing, best, strict=True)]
        said = [[text, doubt] for text, doubt in zip(texts, doubts, strict=True)]
        right = [row["answers"]["text"] for row in split.rows]
        return Answers(said if self.task.may_be_unanswerable else texts, right)

    def _check_room(self, questions: list[str]) -> None:
        """Refuse windows that a question fills; the tokenizer's own words would not help."""
        found = self.tokenizer(questions, add_special_tokens=False)["input_ids"]
        longest = max(len(question) for question in found)
        special = self.tokenizer.num_special_tokens_to_add(pair=True)
        needed = longest + special + self.options.stride + 1
        if self.options.max_length < needed:
            raise ValueError(
                f"max_length must be at least {needed} for questions of {longest} tokens and "
                f"stride={self.options.stride}, got {self.options.max_length}"
            )


def _context_only(offsets: list[tuple[int, int]], sequence: list[int | None]) -> NDArray[np.int32]:
    """The characters that each token stands for; (0, 0) outside of the context."""
    context = np.array([part == 1 for part in sequence])
    return np.where(context[:, None], np.asarray(offsets, np.int32), np.int32(0))


def _first_answer(answers: dict[str, list[Any]]) -> tuple[int, int]:
    """Where the first right answer begins and stops, in characters."""
    if not answers["text"]:
        return _NOWHERE
    start, text = answers["answer_start"][0], answers["text"][0]
    return start, start + len(text)


def _place(spans: NDArray[np.int32], start: int, stop: int) -> tuple[int, int]:
    """The first and last token of a piece of the context, if the window holds all of it."""
    context = np.flatnonzero(spans[:, 1] > 0)
    inside = np.flatnonzero((spans[:, 1] > start) & (spans[:, 0] < stop) & (spans[:, 1] > 0))
    if len(inside) == 0 or spans[context[0], 0] > start or spans[context[-1], 1] < stop:
        return _NOT_HERE, _NOT_HERE
    return int(inside[0]), int(inside[-1])


def _best_piece(
    starts: NDArray[np.floating[Any]],
    ends: NDArray[np.floating[Any]],
    context: NDArray[np.bool_],
    longest: int,
) -> tuple[float, int, int]:
    """The highest sum of two scores, and its first and last token."""
    length = len(context)
    first = np.where(context, starts[:length], -np.inf)
    last = np.pad(
        np.where(context, ends[:length], -np.inf),
        (0, longest - 1),
        constant_values=-np.inf,
    )
    sums = first[:, None] + np.lib.stride_tricks.sliding_window_view(last, longest)
    best, distance = np.unravel_index(int(sums.argmax()), sums.shape)
    return float(sums[best, distance]), int(best), int(best + distance)
