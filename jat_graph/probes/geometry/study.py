"""Three sets of trees, what a model makes of them, and the probes trained on that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from jat_graph.checks.numbers import check_integer
from jat_graph.data.storage import digest
from jat_graph.files import replacing
from jat_graph.hf import disabled
from jat_graph.hf.adapter import find_attachment
from jat_graph.probes.controls import random_weights
from jat_graph.probes.geometry.training import predictor, train_probe, tree_batches
from jat_graph.probes.geometry.trees import Tree
from jat_graph.probes.storage import Rows, stream_states
from jat_graph.probes.words import WordReader
from jat_graph.tasks.treebank import Sentence

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

VERSION = 1  # of how probes are trained
MODEL, OFF, RANDOM = "model", "jumps off", "random weights"


@dataclass(frozen=True)
class TreeSets:
    """Sentences to train on, to stop by, and to score.

    Of those to train on ``most`` are taken, evenly over the file, which is sorted by origin.
    """

    train: Sequence[Sentence]
    dev: Sequence[Sentence]
    test: Sequence[Sentence]
    most: int | None

    def __post_init__(self) -> None:
        """Refuse sets without a sentence."""
        for name in ("train", "dev", "test"):
            if not getattr(self, name):
                raise ValueError(f"{name} must hold a sentence, got none")
        if self.most is not None:
            check_integer("most", self.most, least=1)

    @property
    def sample(self) -> Sequence[Sentence]:
        """What is trained on."""
        if self.most is None or self.most >= len(self.train):
            return self.train
        return [self.train[len(self.train) * k // self.most] for k in range(self.most)]


@dataclass(frozen=True)
class Training:
    """How probes are trained.

    Args:
        rank: Dimensions of their space; None for all.
        epochs: At most.
    """

    rank: int | None
    epochs: int

    def __post_init__(self) -> None:
        """Refuse numbers below 1."""
        check_integer("epochs", self.epochs, least=1)
        if self.rank is not None:
            check_integer("rank", self.rank, least=1)


@dataclass(frozen=True)
class TreeStates:
    """The trees of the sentences that a model can read, and its states of their words."""

    trees: tuple[Tree, ...]
    rows: Rows
    places: tuple[int, ...]  # of the trees in the rows

    @classmethod
    def read(cls, folder: Path, reader: WordReader, sentences: Sequence[Sentence]) -> TreeStates:
        """Run the model, or find what it said before."""
        rows = stream_states(folder, reader, [sentence.words for sentence in sentences])
        places = tuple(row for row in range(len(sentences)) if row not in set(rows.left_out))
        return cls(tuple(Tree(sentences[row]) for row in places), rows, places)

    def states(self, layer: int, device: torch.device) -> list[Tensor]:  # [n, D] each
        """Those after a layer, 0 for the embeddings."""
        own = np.asarray(self.rows.values[layer])
        starts = self.rows.starts
        return [
            torch.tensor(own[starts[row] : starts[row + 1]], device=device) for row in self.places
        ]


@dataclass(frozen=True)
class Study:
    """What a model makes of three sets of trees, and the probes of it in a folder."""

    folder: Path
    device: torch.device
    train: TreeStates
    dev: TreeStates
    test: TreeStates
    training: Training

    @classmethod
    def read(
        cls,
        folder: str | Path,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        sets: TreeSets,
        training: Training,
    ) -> Study:
        """Read all sentences."""
        home, reader = Path(folder), WordReader(model, tokenizer)
        train, dev, test = (
            TreeStates.read(home, reader, own) for own in (sets.sample, sets.dev, sets.test)
        )
        return cls(home, model.device, train, dev, test, training)

    @property
    def width(self) -> int:
        """D."""
        return int(self.train.rows.values.shape[-1])

    @property
    def rank(self) -> int:
        """R, which is no larger than D."""
        return min(self.training.rank or self.width, self.width)

    def probe(self, kind: str, layer: int, seed: int, power: float = 2.0) -> Tensor:  # [D, R]
        """The trained probe, from the folder if it is there."""
        path = self._path(kind, layer, seed, power)
        if path.exists():
            return torch.from_numpy(np.load(path, allow_pickle=False)).to(self.device)
        train, dev = (
            tree_batches(own.states(layer, self.device), own.trees, kind, seed)
            for own in (self.train, self.dev)
        )
        predict = predictor(kind, power)
        found = train_probe(train, dev, predict, self.rank, self.training.epochs, seed)
        with replacing(path) as temporary:
            np.save(temporary, found.cpu().numpy())
        return found

    def points(self, layer: int, projection: Tensor) -> Iterator[Tensor]:  # [n, R] each
        """The words of each sentence of the test set in the space of a probe."""
        return (states @ projection for states in self.test.states(layer, self.device))

    def _path(self, kind: str, layer: int, seed: int, power: float) -> Path:
        asked = {"kind": kind, "layer": layer, "seed": seed, "power": power, "rank": self.rank}
        own = {"version": VERSION, "epochs": self.training.epochs, **asked}
        trees = [[tree.sentence.heads for tree in part.trees] for part in (self.train, self.dev)]
        rows = [part.rows.home.name for part in (self.train, self.dev)]
        return self.folder / f"probe-{digest([own, trees, rows])[:16]}.npy"


def compared(
    model: PreTrainedModel, controls: bool = True
) -> Iterator[tuple[str, PreTrainedModel]]:
    """Yield a model; as controls itself without its jumps, and one that knows nothing."""
    yield MODEL, model
    if not controls:
        return
    if find_attachment(model) is not None:
        with disabled(model):
            yield OFF, model
    twin: Any = random_weights(model)
    yield RANDOM, twin.to(model.device)


def settings_of(study: Study, **more: Any) -> dict[str, Any]:
    """What the numbers depend on, in JSON types."""
    parts = {"train": study.train, "dev": study.dev, "test": study.test}
    return {
        "sentences": {name: len(part.trees) for name, part in parts.items()},
        "left_out": {name: len(part.rows.left_out) for name, part in parts.items()},
        "rank": study.rank,
        "epochs": study.training.epochs,
        **more,
    }
