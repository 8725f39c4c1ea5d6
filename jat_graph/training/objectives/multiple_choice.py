"""Choices: a prompt with each text to choose from, and one score for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from jat_graph.tasks import ChoiceTask
from jat_graph.training.objectives.base import Encoded, draw
from jat_graph.training.objectives.classification import Labelling

if TYPE_CHECKING:
    from datasets import Dataset


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
        """Return what padding is."""
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
