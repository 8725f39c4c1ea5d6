"""IMDB: whole film reviews, for or against."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jat_graph.tasks.base import ClassificationTask
from jat_graph.tasks.sources import find_file, load_from_hub, reading, stratified_split

if TYPE_CHECKING:
    from datasets import Dataset

HUB_NAME = "stanfordnlp/imdb"

_SENTIMENTS = ("neg", "pos")
_SHARES = {"validation": 0.1}
_PLACE = re.compile(r"(?P<part>train|test)/(?P<side>neg|pos)/\d+_(?P<rating>\d+)\.txt$")
_RATINGS = {"neg": range(1, 5), "pos": range(7, 11)}  # what the authors took for each side


class _Review(NamedTuple):
    """A review, and where it stands in the archive or folder."""

    place: str
    text: str
    label: int


@dataclass(frozen=True, kw_only=True)
class ImdbTask(ClassificationTask):
    """Tell whether a review of a film is for or against it.

    The published parts are ``train`` and ``test``. So that no run chooses its weights by the test,
    a tenth of each side of the published ``train`` is drawn for validation, always the same. The
    reviews are as they were written, with their ``<br />``. They are read from the unpacked folder
    ``aclImdb``, from ``aclImdb_v1.tar.gz`` or from ``aclImdb_subset.tar.gz``.

    Reference:
        Maas et al., *Learning Word Vectors for Sentiment Analysis*, ACL 2011.
    """

    name: str = "imdb"
    text_columns: tuple[str, ...] = ("text",)
    labels: tuple[str, ...] | None = ("negative", "positive")
    splits: tuple[str, ...] = ("train", "validation", "test")
    primary_metric: str = "accuracy"

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read the reviews as they are, with their ``<br />``."""
        parts = sorted({"test" if split == "test" else "train" for split in splits})
        if data_dir is None:
            columns = (*self.text_columns, "label")
            loaded = load_from_hub(self.name, HUB_NAME, splits=parts, columns=columns)
        else:
            loaded = self._from_files(data_dir, parts)
        if "train" in loaded:
            train = loaded["train"]
            rows = stratified_split(list(train["label"]), _SHARES)
            loaded |= {split: train.select(rows[split]) for split in ("train", "validation")}
        return loaded

    def _from_files(self, folder: Path, parts: Sequence[str]) -> dict[str, Dataset]:
        from datasets import Dataset

        homes = ("aclImdb", "imdb", "imdb/aclImdb")
        names = ("train", "test", "aclImdb_v1.tar.gz", "aclImdb_subset.tar.gz")
        path = find_file(folder, self.name, homes, names)
        if path.is_dir():
            path = path.parent
        # in one order whatever the archive's, so that what is drawn from them is the same
        reviews = sorted(_read_reviews(path, parts))
        loaded = {}
        for part in parts:
            rows = [review for review in reviews if review.place.startswith(part)]
            if {review.label for review in rows} != {0, 1}:
                raise ValueError(f"{path} must hold {part}/neg and {part}/pos, got not both")
            columns = {"text": [row.text for row in rows], "label": [row.label for row in rows]}
            loaded[part] = Dataset.from_dict(columns)
        return loaded


def _read_reviews(path: Path, parts: Sequence[str]) -> Iterator[_Review]:
    """Read the reviews of some parts, each file once."""
    for name, content in _folder_files(path) if path.is_dir() else _archive_files(path):
        found = _PLACE.search(name)
        if found is not None and found["part"] in parts:
            yield _review(path, found, content)


def _folder_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for side in _SENTIMENTS:
        for path in folder.glob(f"*/{side}/*.txt"):
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def _archive_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an archive as they come; links in it are not followed."""
    with reading(path), tarfile.open(path, "r:gz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content.read()


def _review(path: Path, found: re.Match[str], content: bytes) -> _Review:
    """Check a review against the name of its file."""
    place, side, rating = found[0], found["side"], int(found["rating"])
    allowed = _RATINGS[side]
    if rating not in allowed:
        wanted = f"{allowed[0]} to {allowed[-1]}"
        raise ValueError(f"{path}, {place}: the rating must be {wanted} for {side}, got {rating}")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"a bad byte at {error.start}"
        raise ValueError(f"{path}, {place} must be UTF-8, got {problem}") from None
    if not text.strip():
        raise ValueError(f"{path}, {place} must hold text, got none")
    return _Review(place, text, _SENTIMENTS.index(side))
