"""The next token, of a text or of a sequence that needs no tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from jat_graph.tasks import LanguageModelTask
from jat_graph.training.objectives.base import Encoded, Objective, draw

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

_NO_LABEL = -100


class LanguageModelling(Objective[LanguageModelTask]):
    """Documents in blocks of ``max_length`` tokens.

    A block begins with the last token of the one before it, so that each token of a document but
    the first is predicted exactly once. Nothing is cut off.
    """

    auto_class: ClassVar[str] = "AutoModelForCausalLM"
    architectures: ClassVar[str] = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
    wanted: ClassVar[str] = "language model"
    counts_items: ClassVar[bool] = True

    @property
    def saved_tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The tokenizer of a task of texts."""
        return self.tokenizer if self.task.vocabulary_size is None else None

    def model_settings(self) -> dict[str, Any]:
        """The size of the vocabulary, for a model from scratch."""
        if not self.options.from_scratch:
            return {}
        size = self.task.vocabulary_size
        if size is None:
            return {"vocab_size": len(self.tokenizer)}
        ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
        return {"vocab_size": size, **ends}

    def check_config(self, config: PreTrainedConfig) -> None:
        """Refuse a vocabulary that is too small."""
        wanted = self.task.vocabulary_size or len(self.tokenizer)
        if config.vocab_size < wanted:
            raise ValueError(
                f"model {self.options.model!r} must have a vocabulary of {wanted} tokens for task "
                f"{self.task.name}, got {config.vocab_size}"
            )

    def check_model(self, model: PreTrainedModel) -> None:
        """Refuse an encoder: it would see what it is to say."""
        training = model.training
        with torch.no_grad():
            model.train(False)
            first, other = model(input_ids=torch.tensor([[0, 0], [0, 1]])).logits[:, 0]
            model.train(training)
        if not torch.equal(first, other):
            raise ValueError(
                f"model {self.options.model!r} must be a decoder for task {self.task.name}, "
                f"got {type(model).__name__}, which sees later tokens"
            )

    def encode(self, rows: Dataset, limit: int | None) -> Encoded:
        """Cut documents into blocks; a limit is one of blocks, since documents may be few."""
        from datasets import Dataset

        blocks, units, size = [], [], self.options.max_length
        if size < 2:
            raise ValueError(f"max_length must be at least 2 to predict tokens, got {size}")
        for tokens, counts in self._documents(rows):
            for start in range(0, len(tokens) - 1, size - 1):
                blocks.append(tokens[start : start + size])
                units.append(sum(counts[start + 1 : start + size]))
        drawn = draw(Dataset.from_dict({"input_ids": blocks, "units": units}), limit)
        return Encoded(drawn.remove_columns("units"), rows, {"units": sum(drawn["units"])})

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """Pad on the right; what is padding is no label."""
        blocks = [torch.tensor(row["input_ids"]) for row in rows]
        tokens = pad_sequence(blocks, batch_first=True)
        real = pad_sequence([torch.ones_like(block) for block in blocks], batch_first=True)
        labels = tokens.masked_fill(real == 0, _NO_LABEL)
        return {"input_ids": tokens, "attention_mask": real, "labels": labels}

    def reduce(self, outputs: Any, labels: Any) -> Any:
        """Keep the loss of each token in place of scores of the whole vocabulary."""
        logits = outputs[0] if isinstance(outputs, tuple) else outputs
        return functional.cross_entropy(
            logits[:, :-1].transpose(1, 2).float(), labels[:, 1:], reduction="none"
        )

    def judge(self, predictions: Any, labels: Any, split: Encoded) -> tuple[dict[str, float], None]:
        """Summarise the losses of all tokens."""
        losses = np.asarray(predictions)[np.asarray(labels)[:, 1:] != _NO_LABEL]
        return self.task.compute_metrics(losses, split.notes["units"]), None

    def _documents(self, rows: Dataset) -> list[tuple[list[int], list[int]]]:
        """Each document's tokens, and how many characters (or one) each stands for."""
        if self.task.vocabulary_size is not None:
            return [(tokens, [1] * len(tokens)) for tokens in rows["tokens"]]
        found = self.tokenizer(
            list(rows["text"]),
            add_special_tokens=False,
            return_offsets_mapping=True,
            verbose=False,  # it would warn of their length
        )
        ends = [[end for _, end in offsets] for offsets in found["offset_mapping"]]
        # White space between two tokens is the second one's.
        units = [np.diff(stops, prepend=0).tolist() for stops in ends]
        return list(zip(found["input_ids"], units, strict=True))
