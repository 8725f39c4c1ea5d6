"""A tag for each word of a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from jat_graph.tasks import WordTask
from jat_graph.tasks.metrics import decide
from jat_graph.training.objectives.base import Answering, Answers, Cut, Encoded, draw

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedConfig

_NO_LABEL = -100


class Tagging(Answering[WordTask]):
    """A tag for each word, told to the first token of it; the others are told nothing.

    A sentence is read as a text, its words joined by blanks, so that any tokenizer will do. What is
    longer than ``max_length`` is cut, and words that no token is left of are tagged as the task
    says, ``O`` or not at all.
    """

    auto_class: ClassVar[str] = "AutoModelForTokenClassification"
    architectures: ClassVar[str] = "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES"
    wanted: ClassVar[str] = "tagger of tokens"

    @property
    def loss(self) -> Callable[..., Tensor]:
        """The mean over all words of a step: batches of it and processes have more or fewer."""
        return _mean_over_words

    def model_settings(self) -> dict[str, Any]:
        """The number of tags and their names."""
        labels = self.task.labels
        return {
            "num_labels": len(labels),
            "id2label": dict(enumerate(labels)),
            "label2id": {label: number for number, label in enumerate(labels)},
        }

    def check_config(self, config: PreTrainedConfig) -> None:
        """Refuse another number of tags."""
        wanted = len(self.task.labels)
        if config.num_labels != wanted:
            raise ValueError(
                f"model {self.options.model!r} must have {wanted} labels for task "
                f"{self.task.name}, got {config.num_labels}"
            )

    def encode(self, rows: Dataset, limit: int | None) -> Encoded:
        """Tokenize each sentence, and find the first token of each word."""
        from datasets import Dataset

        rows, max_length = draw(rows, limit), self.options.max_length
        self._check_room()
        sentences = list(rows["tokens"])
        texts = [" ".join(words) for words in sentences]
        settings: dict[str, Any] = {"return_offsets_mapping": True, "verbose": False}
        found = self.tokenizer(texts, **settings)
        cut = Cut.of([len(ids) for ids in found["input_ids"]], max_length)
        if cut.documents:
            found = self.tokenizer(texts, truncation=True, max_length=max_length, **settings)
        offsets = found.pop("offset_mapping")
        words = [_words(spans, names) for spans, names in zip(offsets, sentences, strict=True)]
        number = {label: place for place, label in enumerate(self.task.labels)}
        labels = [
            [_NO_LABEL if word < 0 else number[tags[word]] for word in owners]
            for owners, tags in zip(words, rows["tags"], strict=True)
        ]
        features = Dataset.from_dict({**found, "labels": labels})
        return Encoded(features, rows, {"words": words}, cut)

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """Pad on the right, whatever the tokenizer prefers; what is padding has no label."""
        labels = [torch.tensor(row["labels"]) for row in rows]
        inputs = [{name: row[name] for name in row if name != "labels"} for row in rows]
        batch = dict(self.tokenizer.pad(inputs, padding_side="right", return_tensors="pt"))
        padded = pad_sequence(labels, batch_first=True, padding_value=_NO_LABEL)
        return {**batch, "labels": padded}

    def reduce(self, outputs: Any, labels: Any) -> Any:
        """Keep the scores of the tags."""
        return (outputs[0] if isinstance(outputs, tuple) else outputs).float()

    def answers(self, predictions: Any, labels: Any, split: Encoded) -> Answers:
        """What the tags come to: spans, or the tags themselves."""
        told = np.asarray(labels) != _NO_LABEL
        names = self.task.labels
        _check_finite(np.asarray(predictions), told)
        chosen = decide(np.asarray(predictions)[told], np.asarray(labels)[told], len(names))
        tags = iter(chosen.tolist())
        said = []
        for owners, words in zip(split.notes["words"], split.rows["tokens"], strict=True):
            sentence = [self.task.unread] * len(words)
            for word in owners[owners >= 0]:
                sentence[word] = names[next(tags)]
            said.append(sentence)
        return Answers(*self.task.gather(said, split.rows))

    def _check_room(self) -> None:
        """Refuse a limit that special tokens fill."""
        special = self.tokenizer.num_special_tokens_to_add()
        if self.options.max_length <= special:
            raise ValueError(
                f"max_length must be at least {special + 1} for task {self.task.name} and "
                f"{special} special tokens, got {self.options.max_length}"
            )


def _check_finite(scores: NDArray[Any], told: NDArray[np.bool_]) -> None:
    """Refuse scores of a word that are no numbers, and name its sentence."""
    bad = np.argwhere(told & ~np.isfinite(scores).all(axis=-1))
    if len(bad):
        sentence, token = bad[0]
        first = scores[sentence, token].tolist()
        raise ValueError(f"predictions must be finite, got {first} in sentence {sentence}")


def _mean_over_words(
    outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
) -> Tensor:
    """A batch's share of the mean over a step of so many words; its own mean without."""
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    total = functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=_NO_LABEL, reduction="sum"
    )
    words = (labels != _NO_LABEL).sum() if num_items_in_batch is None else num_items_in_batch
    return total / words


def _words(offsets: Sequence[tuple[int, int]], words: Sequence[str]) -> NDArray[np.int64]:
    """The number of the word that each token is the first of, else -1.

    Words are joined by one blank. A token may begin with the blank in front of its word.
    """
    stops = np.cumsum([len(word) + 1 for word in words]) - 1
    starts = stops - [len(word) for word in words]
    places = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    owners = np.minimum(np.searchsorted(stops, places[:, 0], side="right"), len(words) - 1)
    # special tokens stand for no characters, and some tokens for a blank only
    inside = (places[:, 1] > np.maximum(places[:, 0], starts[owners])) & (
        places[:, 0] < stops[owners]
    )
    tokens = np.flatnonzero(inside)
    _, first = np.unique(owners[tokens], return_index=True)
    found = np.full(len(places), -1)
    found[tokens[first]] = owners[tokens[first]]
    return found
