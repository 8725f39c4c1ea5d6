"""SQuAD: questions about paragraphs of Wikipedia; in its second version some have no answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks.answers import score_doubted_answers
from jat_graph.tasks.base import QuestionTask
from jat_graph.tasks.sources import find_file, load_from_hub, plain_or_gzipped
from jat_graph.tasks.squad_files import read_squad

if TYPE_CHECKING:
    from datasets import Dataset

_COLUMNS = ("id", "question", "context", "answers")
_HUB_NAMES = {"1.1": "rajpurkar/squad", "2.0": "rajpurkar/squad_v2"}
_STEMS = {"train": "train", "validation": "dev"}
# Copies that must be small have the file's first articles under this name; a few thousand
# questions are enough to try things out.
_HEAD = "train-v1.1.head.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SquadTask(QuestionTask):
    """Find the answers to questions in paragraphs of Wikipedia.

    In version 2.0 the answers of some questions are not in the paragraph, and ``answers`` is empty
    there. What a model says is then a pair: a text, and by how much it rather says that there is
    none. A text whose doubt is at most 0 counts as given: ``f1`` and ``exact_match`` are at that
    limit, so nothing about them is chosen by the dev set. ``best_f1`` and ``best_exact_match`` are
    what papers report: as the official script does, the limit of each is searched for on the very
    dev set that they are measured on, so they come out too high.

    Where a folder has only the beginning of version 1.1's training data, as some copies do, that is
    trained on, and a warning says so.

    Args:
        version: ``"1.1"`` or ``"2.0"``. (default: "1.1")
        longest_answer: Tokens that an answer has at most. (default: 30, BERT's)

    Reference:
        Rajpurkar et al., *SQuAD: 100,000+ Questions for Machine Comprehension of Text*, EMNLP 2016;
        Rajpurkar, Jia and Liang, *Know What You Don't Know: Unanswerable Questions for SQuAD*, ACL
        2018.
    """

    name: str = "squad"
    splits: tuple[str, ...] = tuple(_STEMS)
    version: str = "1.1"
    longest_answer: int = 30

    @property
    def may_be_unanswerable(self) -> bool:
        """Whether some questions have no answer."""
        return self.version == "2.0"

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read the version's files, or ask the Hub."""
        if data_dir is None:
            hub = _HUB_NAMES[self.version]
            return load_from_hub(self.name, hub, splits=splits, columns=_COLUMNS)
        return {split: self._read(data_dir, split) for split in splits}

    def measure(self, said: Sequence[Any], right: Sequence[Sequence[str]]) -> dict[str, float]:
        """Compare answers with the right ones, by the rules of the version; any selection will do.

        Args:
            said: The model's answer to each question; in version 2.0 the pair of it and its doubt.
            right: The texts that count as right.

        Returns:
            The primary metric, then the others, by name; each from 0 to 1.

        Raises:
            ValueError: If there are no questions, or not the same number of both, or a doubt is
                NaN.
        """
        if not self.may_be_unanswerable:
            return super().measure(said, right)
        scores = score_doubted_answers(said, right)
        return {name: scores[name] for name in (self.primary_metric, *self.other_metrics)}

    def _read(self, folder: Path, split: str) -> Dataset:
        from datasets import Dataset

        stems = [f"{_STEMS[split]}-v{self.version}.json"]
        if split == "train" and self.version == "1.1":
            stems.append(_HEAD)
        path = find_file(folder, self.name, ("squad",), plain_or_gzipped(*stems))
        rows = read_squad(path, may_be_unanswerable=self.may_be_unanswerable)
        if path.name.startswith(_HEAD):
            message = "%s is only the beginning of the file to train on: %d questions serve as such"
            logger.warning(message, path, len(rows))
        return Dataset.from_list(rows, features=_features())


SQUAD = SquadTask()
SQUAD2 = SquadTask(
    name="squad2", version="2.0", other_metrics=("exact_match", "best_f1", "best_exact_match")
)


def _features() -> Any:
    """The types of the columns, which a split without answers does not tell."""
    from datasets import Features, List, Value

    text, number = Value("string"), Value("int32")
    plain = dict.fromkeys(("id", "question", "context"), text)
    return Features({**plain, "answers": {"text": List(text), "answer_start": List(number)}})
