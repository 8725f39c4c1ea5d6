"""Classes and numbers: one label for each text or pair of texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor

from jat_graph.tasks import ClassificationTask
from jat_graph.training.objectives.base import Cut, Encoded, Objective, draw

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedConfig


class Classification(Objective[ClassificationTask]):
    """A label for each text or pair; what is longer than ``max_length`` is cut."""

    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"
    architectures: ClassVar[str] = "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES"
    wanted: ClassVar[str] = "classifier"

    def model_settings(self) -> dict[str, Any]:
        """Return the number of labels, their names, and what padding is."""
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
        """Refuse another number of labels."""
        wanted = 1 if self.task.labels is None else len(self.task.labels)
        if config.num_labels != wanted:
            raise ValueError(
                f"model {self.options.model!r} must have {wanted} labels for task "
                f"{self.task.name}, got {config.num_labels}"
            )

    def encode(self, rows: Dataset, limit: int | None) -> Encoded:
        """Tokenize each text or pair; of a pair the longer text is cut first."""
        from datasets import Dataset

        rows, max_length = draw(rows, limit), self.options.max_length
        self._check_room()
        texts = [list(rows[column]) for column in self.task.text_columns]
        columns = self.tokenizer(*texts, verbose=False)  # it would warn of their length
        cut = Cut.of([len(ids) for ids in columns["input_ids"]], max_length)
        if cut.documents:
            columns = self.tokenizer(*texts, truncation=True, max_length=max_length)
        features = Dataset.from_dict({**columns, "labels": list(rows["label"])})
        return Encoded(features, rows, cut=cut)

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """Pad with the tokenizer."""
        from transformers import DataCollatorWithPadding

        batch: dict[str, Tensor] = DataCollatorWithPadding(self.tokenizer)(rows)
        return batch

    def reduce(self, outputs: Any, labels: Any) -> Any:
        """Keep the scores of the classes."""
        return outputs[0] if isinstance(outputs, tuple) else outputs

    def score(self, predictions: Any, labels: Any, split: Encoded) -> dict[str, float]:
        """Compare scores with labels."""
        return self.task.compute_metrics(np.asarray(predictions), np.asarray(labels))

    def _check_room(self) -> None:
        """Refuse a limit that special tokens fill: the tokenizer would then cut nothing."""
        texts = len(self.task.text_columns)
        special = self.tokenizer.num_special_tokens_to_add(pair=texts == 2)
        if self.options.max_length < special + texts:
            raise ValueError(
                f"max_length must be at least {special + texts} for task {self.task.name} and "
                f"{special} special tokens, got {self.options.max_length}"
            )
