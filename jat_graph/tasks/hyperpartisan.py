"""Hyperpartisan news: does an article take one side blindly?"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from jat_graph.files import parse_xml
from jat_graph.tasks.base import ClassificationTask
from jat_graph.tasks.sources import find_file, plain_or_gzipped, read_bytes, stratified_split

if TYPE_CHECKING:
    from datasets import Dataset

_SHARES = {"validation": 0.1, "test": 0.1}
_ANSWERS = ("false", "true")
_BORDER = "\f"  # of a paragraph; XML allows no such character


def article_text(article: ElementTree.Element) -> str:
    """The text of an article without its markup, a blank line between paragraphs."""
    parts = html.unescape("".join(_pieces(article))).split(_BORDER)
    paragraphs = (" ".join(part.split()) for part in parts)
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _pieces(element: ElementTree.Element) -> Iterator[str]:
    """Yield the pieces of text in their order, and the borders of paragraphs."""
    border = _BORDER if element.tag == "p" else ""
    yield border + (element.text or "")
    for child in element:
        yield from _pieces(child)
        yield child.tail or ""
    yield border


@dataclass(frozen=True, kw_only=True)
class HyperpartisanTask(ClassificationTask):
    """Tell whether a news article takes one side blindly: SemEval 2019's task 4, labels by article.

    The 645 articles have no splits. A tenth of each class, rounded, is drawn for validation and
    another for the test, the same in every run: 515, 65 and 65. Titles are not part of the text.
    The files are ``articles-training-byarticle-20181122.xml``, and the same of ``ground-truth``.

    Reference:
        Kiesel et al., *SemEval-2019 Task 4: Hyperpartisan News Detection*, 2019; Beltagy, Peters
        and Cohan, *Longformer: The Long-Document Transformer*, 2020, for shares of 80, 10 and 10 %.
    """

    name: str = "hyperpartisan"
    text_columns: tuple[str, ...] = ("text",)
    labels: tuple[str, ...] | None = ("mainstream", "hyperpartisan")
    splits: tuple[str, ...] = ("train", "validation", "test")
    primary_metric: str = "f1"
    other_metrics: tuple[str, ...] = ("accuracy",)

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read the articles, join them with their labels, and draw the splits."""
        from datasets import Dataset

        path, answers = (self._find(data_dir, stem) for stem in ("articles", "ground-truth"))
        truth = _read_labels(answers)
        texts, labels = [], []
        for name, article in _read_articles(path).items():
            if name not in truth:
                raise ValueError(f"{answers} must have a label for article {name!r}, got none")
            texts.append(_checked_text(path, name, article))
            labels.append(truth[name])
        rows = stratified_split(labels, _SHARES)
        every = Dataset.from_dict({"text": texts, "label": labels})
        return {split: every.select(rows[split]) for split in splits}

    def _find(self, folder: Path | None, stem: str) -> Path:
        names = plain_or_gzipped(f"{stem}-training-byarticle-20181122.xml")
        return find_file(folder, self.name, ("hyperpartisan",), names)


def _read_articles(path: Path) -> dict[str, ElementTree.Element]:
    """Read the elements named article of a file, by their ids."""
    root = parse_xml(read_bytes(path), str(path))
    found = {article.get("id", ""): article for article in root.iter("article")}
    if not found:
        raise ValueError(f"{path} must hold articles, got none")
    return found


def _read_labels(path: Path) -> dict[str, int]:
    labels = {}
    for name, article in _read_articles(path).items():
        answer = article.get("hyperpartisan")
        if answer not in _ANSWERS:
            raise ValueError(
                f"{path}, article {name!r}: hyperpartisan must be {' or '.join(_ANSWERS)}, "
                f"got {answer!r}"
            )
        labels[name] = _ANSWERS.index(answer)
    return labels


def _checked_text(path: Path, name: str, article: ElementTree.Element) -> str:
    text = article_text(article)
    if not text:
        raise ValueError(f"{path}, article {name!r} must hold text, got none")
    return text
