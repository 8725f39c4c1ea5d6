"""One label for each text or pair of texts, or for several pairs: classes, numbers, choices."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from jat_graph.tasks import ChoiceTask, ClassificationTask
from jat_graph.tasks.base import LabelledTask
from jat_graph.training.objectives.base import Answering, Answers, Cut, Encoded, draw

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedConfig

logger = logging.getLogger(__name__)

_UNNAMED = re.compile(r"LABEL_\d+$")  # as transformers calls labels of which nothing is said

LabelledT = TypeVar("LabelledT", bound=LabelledTask)


class Labelling(Answering[LabelledT]):
    """What all tasks with labels share."""

    def tokenize(self, texts: Sequence[Sequence[str]]) -> tuple[dict[str, list[Any]], Cut]:
        """Token ids of one column of texts, or of two for pairs, whose longer text is cut first."""
        max_length = self.options.max_length
        self._check_room(len(texts))
        columns = self.tokenizer(*texts, verbose=False)  # it would warn of their length
        cut = Cut.of([len(ids) for ids in columns["input_ids"]], max_length)
        if cut.documents:
            columns = self.tokenizer(*texts, truncation=True, max_length=max_length)
        return dict(columns), cut

    def reduce(self, outputs: Any, labels: Any) -> Any:
        """Keep the scores of the classes."""
        return outputs[0] if isinstance(outputs, tuple) else outputs

    def answers(self, predictions: Any, labels: Any, split: Encoded) -> Answers:
        """The classes that were said, or the outputs."""
        said = self.task.decide(np.asarray(predictions), np.asarray(labels))
        return Answers(*self.task.gather(said.tolist(), split.rows))

    def _check_room(self, texts: int) -> None:
        """Refuse a limit that special tokens fill: the tokenizer would then cut nothing."""
        special = self.tokenizer.num_special_tokens_to_add(pair=texts == 2)
        if self.options.max_length < special + texts:
            raise ValueError(
                f"max_length must be at least {special + texts} for task {self.task.name} and "
                f"{special} special tokens, got {self.options.max_length}"
            )


class Classification(Labelling[ClassificationTask]):
    """A label for each text or pair; what is longer than ``max_length`` is cut."""

    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"
    architectures: ClassVar[str] = "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES"
    wanted: ClassVar[str] = "classifier"

    def model_settings(self) -> dict[str, Any]:
        """The number of labels, their names, and what padding is."""
        labels, padding = self.task.labels, {"pad_token_id": self.tokenizer.pad_token_id}
        if labels is None:
            return {"num_labels": 1, "problem_type": "regression", **padding}
        return {
            "num_labels": len(labels),
            "problem_type": "single_label_classification",
            "id2label": dict(enumerate(labels)),
            "label2id": {label: i for i, label in enumerate(labels)},
            **padding,
        }

    def check_config(self, config: PreTrainedConfig) -> None:
        """Refuse another number of labels, and say where they have other names."""
        wanted = 1 if self.task.labels is None else len(self.task.labels)
        if config.num_labels != wanted:
            raise ValueError(
                f"model {self.options.model!r} must have {wanted} labels for task "
                f"{self.task.name}, got {config.num_labels}"
            )
        found: Any = config.id2label  # of a configuration a dictionary of whole numbers
        named = [str(found[place]) for place in sorted(found)]
        if self.task.labels not in (None, tuple(named)) and not _UNNAMED.match(named[0]):
            logger.warning(
                "model %r has the labels %s, and task %s has %s: they are taken in this order",
                self.options.model,
                ", ".join(named),
                self.task.name,
                ", ".join(self.task.labels or ()),
            )

    def encode(self, rows: Dataset, limit: int | None) -> Encoded:
        """Tokenize each text or pair."""
        from datasets import Dataset

        rows = draw(rows, limit, self.task.group)
        columns, cut = self.tokenize([list(rows[column]) for column in self.task.text_columns])
        features = Dataset.from_dict({**columns, "labels": list(rows["label"])})
        return Encoded(features, rows, cut=cut)

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """Pad with the tokenizer."""
        from transformers import DataCollatorWithPadding

        batch: dict[str, Tensor] = DataCollatorWithPadding(self.tokenizer)(rows)
        return batch


class MultipleChoice(Labelling[ChoiceTask]):
    """Each choice is read with the prompt before it; what is longer than ``max_length`` is cut.

    Reference:
        Radford et al., *Improving Language Understanding by Generative Pre-Training*, 2018,
        section 3.3: a pair for each choice, one score from each, and the softmax over them.
    """

    auto_class: ClassVar[str] = "AutoModelForMultipleChoice"
    architectures: ClassVar[str] = "MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES"
    wanted: ClassVar[str] = "model for multiple choice"

    def model_settings(self) -> dict[str, Any]:
        """What padding is."""
        return {"pad_token_id": self.tokenizer.pad_token_id}

    def encode(self, rows: Dataset, limit: int | None) -> Encoded:
        """Tokenize the pairs of each row: lists ``[C][L]`` for C choices."""
        from datasets import Dataset

        rows, count = draw(rows, limit, self.task.group), self.task.num_choices
        if any(len(choices) != count for choices in rows["choices"]):
            raise ValueError(f"rows of task {self.task.name} must have {count} choices, got others")
        prompts = [prompt for prompt in rows["prompt"] for _ in range(count)]
        choices = [choice for choices in rows["choices"] for choice in choices]
        columns, cut = self.tokenize([prompts, choices])
        folded = {
            name: [values[first : first + count] for first in range(0, len(values), count)]
            for name, values in columns.items()
        }
        return Encoded(Dataset.from_dict({**folded, "labels": list(rows["label"])}), rows, cut=cut)

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """Pad all pairs of a batch to the longest: ``[B, C, L]``."""
        labels = torch.tensor([row["labels"] for row in rows])
        names = [name for name in rows[0] if name != "labels"]
        pairs = [
            {name: row[name][choice] for name in names}
            for row in rows
            for choice in range(self.task.num_choices)
        ]
        padded = self.tokenizer.pad(pairs, return_tensors="pt")
        batch = {
            name: values.unflatten(0, (len(rows), self.task.num_choices))
            for name, values in padded.items()
        }
        return {**batch, "labels": labels}
