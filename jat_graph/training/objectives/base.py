"""What a run asks of a kind of task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from torch import Tensor

from jat_graph.tasks import LabelledTask, QuestionTask, Task, WordTask
from jat_graph.training.options import TrainingOptions
from jat_graph.training.pretrained import load_tokenizer

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

TaskT = TypeVar("TaskT", bound=Task)
AnsweredT = TypeVar("AnsweredT", bound=LabelledTask | QuestionTask | WordTask)

# Seed of the draw that max_train_samples and max_eval_samples ask for: one subset for all seeds.
_SUBSET_SEED = 0


@dataclass(frozen=True)
class Cut:
    """What the limit of length took away from a split."""

    documents: int  # that were cut
    all_documents: int
    tokens: int  # that were lost
    all_tokens: int

    @classmethod
    def of(cls, lengths: Sequence[int], limit: int) -> Cut:
        """What a limit takes away from documents of these lengths."""
        lost = [length - limit for length in lengths if length > limit]
        return cls(len(lost), len(lengths), sum(lost), sum(lengths))

    def __str__(self) -> str:
        """Half a sentence that says it."""
        share = self.tokens / max(1, self.all_tokens)
        return (
            f"{self.documents} of {self.all_documents} documents lose {self.tokens} of "
            f"{self.all_tokens} tokens ({share:.1%})"
        )


@dataclass(frozen=True)
class Encoded:
    """A split as token ids."""

    features: Dataset  # what the model reads and is told, one row a sequence
    rows: Dataset  # the task's own
    notes: Mapping[str, Any] = field(default_factory=dict)  # what only scores need, by name
    cut: Cut | None = None  # None if nothing ever is cut off


@dataclass(frozen=True)
class Answers:
    """What a model said of each example of a split, beside what is right."""

    said: list[Any]  # in types of JSON; the task's ``measure`` reads them
    right: list[Any]


class Objective(ABC, Generic[TaskT]):
    """How a kind of task is trained."""

    auto_class: ClassVar[str]  # of transformers, which loads a model
    architectures: ClassVar[str]  # name of transformers' table of the classes that fit
    wanted: ClassVar[str]  # what such a model is called in messages
    labels: ClassVar[tuple[str, ...]] = ("labels",)  # columns that a model is told the answer by
    # Whether models divide the loss by the number of labels they are told, which makes accumulated
    # batches one. Many heads swallow that number: their loss and gradients would be multiplied by
    # the number of accumulated batches (transformers issue 47688).
    counts_items: ClassVar[bool] = False

    def __init__(self, task: TaskT, options: TrainingOptions) -> None:
        self.task = task
        self.options = options

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer, loaded when first wanted."""
        return load_tokenizer(self.options.model)

    @property
    def loss(self) -> Callable[..., Tensor] | None:
        """The loss of a batch's outputs and labels, as the Trainer wants it; None: the model's."""
        return None

    @property
    def saved_tokenizer(self) -> PreTrainedTokenizerBase | None:
        """What is saved beside the model; None where no text is read."""
        return self.tokenizer

    def model_settings(self) -> dict[str, Any]:
        """What a model's configuration says about the task, by name."""
        return {}

    def check_config(self, config: PreTrainedConfig) -> None:
        """Refuse a trained model that does not fit the task."""

    def check_model(self, model: PreTrainedModel) -> None:
        """Refuse a model that cannot be trained for the task."""

    @abstractmethod
    def encode(self, rows: Dataset, limit: int | None) -> Encoded:
        """Rows, at most ``limit`` of them, as sequences of token ids, once for the whole run."""

    @abstractmethod
    def collate(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """Pad sequences to the longest of a batch."""

    @abstractmethod
    def reduce(self, outputs: Any, labels: Any) -> Any:
        """Keep of a batch's outputs what scores need: hidden states would fill the memory."""

    @abstractmethod
    def judge(
        self, predictions: Any, labels: Any, split: Encoded
    ) -> tuple[dict[str, float], Answers | None]:
        """Scores by name, and what was answered; None where a task has no examples, as a text.

        Predictions are what :meth:`reduce` kept, joined over batches and padded with -100.
        """


class Answering(Objective[AnsweredT]):
    """How a kind of task is trained that has examples, each with an answer."""

    @abstractmethod
    def answers(self, predictions: Any, labels: Any, split: Encoded) -> Answers:
        """What a model answered to each example."""

    def judge(
        self, predictions: Any, labels: Any, split: Encoded
    ) -> tuple[dict[str, float], Answers]:
        """Compare the answers with what is right."""
        answers = self.answers(predictions, labels, split)
        return self.task.measure(answers.said, answers.right), answers


def draw(dataset: Dataset, limit: int | None, group: str | None = None) -> Dataset:
    """About ``limit`` rows, the same in every run; rows of one group stay together."""
    if limit is None or limit >= len(dataset):
        return dataset
    if group is None:
        return dataset.shuffle(seed=_SUBSET_SEED).select(range(limit))
    return dataset.select(draw_groups(dataset[group], limit)[0])


def draw_groups(groups: Iterable[Any], limit: int) -> tuple[list[int], list[int]]:
    """Rows of whole groups, drawn until there are enough, and the rows left; always the same."""
    members: dict[Any, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    found = list(members.values())
    drawn: set[int] = set()
    for number in np.random.default_rng(_SUBSET_SEED).permutation(len(found)):
        if len(drawn) >= limit:
            break
        drawn.update(found[number])
    rows = range(sum(map(len, found)))
    return [row for row in rows if row in drawn], [row for row in rows if row not in drawn]
