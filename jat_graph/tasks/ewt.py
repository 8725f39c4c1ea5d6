"""Parts of speech and relations of words to their heads, of UD English EWT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks.sources import find_file, plain_or_gzipped
from jat_graph.tasks.tagging import WordTaggingTask
from jat_graph.tasks.treebank import Sentence, read_treebank

if TYPE_CHECKING:
    from datasets import Dataset

_FILE_SPLITS = {"train": "train", "validation": "dev", "test": "test"}
_HOMES = ("ud_english_ewt", "UD_English-EWT")

# Those of Universal Dependencies, version 2.
PARTS_OF_SPEECH = tuple(
    "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split()
)
RELATIONS = tuple(
    "acl advcl advmod amod appos aux case cc ccomp clf compound conj cop csubj dep det discourse "
    "dislocated expl fixed flat goeswith iobj list mark nmod nsubj nummod obj obl orphan parataxis "
    "punct reparandum root vocative xcomp".split()
)


@dataclass(frozen=True, kw_only=True)
class EwtTask(WordTaggingTask):
    """Say of each word of an English sentence its part of speech, or its relation to its head.

    Sentences are those of UD English EWT, from blogs, mails, reviews and the like, with the
    published splits. Words are as the treebank cuts them: "do" and "n't" are two. Of relations
    only what stands before a colon is asked: ``nsubj:pass`` is ``nsubj``; the root's is ``root``.

    Args:
        layer: ``"tags"`` for parts of speech, ``"relations"`` for relations. (default: tags)

    Reference:
        Silveira et al., *A Gold Standard Dependency Corpus for English*, LREC 2014; de Marneffe et
        al., *Universal Dependencies*, Computational Linguistics 47, 2021, for the tags.
    """

    splits: tuple[str, ...] = tuple(_FILE_SPLITS)
    layer: str = "tags"

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read a file of trees for each split."""
        from datasets import Dataset

        loaded = {}
        for split in splits:
            names = plain_or_gzipped(f"en_ewt-ud-{_FILE_SPLITS[split]}.conllu")
            path = find_file(data_dir, self.name, _HOMES, names)
            loaded[split] = Dataset.from_list(self._rows(path, read_treebank(path)))
        return loaded

    def _rows(self, path: Path, sentences: Sequence[Sentence]) -> list[dict[str, Any]]:
        known, rows = frozenset(self.tags), []
        for number, sentence in enumerate(sentences, start=1):
            tags = [tag.partition(":")[0] for tag in getattr(sentence, self.layer)]
            unknown = next((tag for tag in tags if tag not in known), None)
            if unknown is not None:
                wanted = f"{self.layer} must be among {', '.join(self.tags)}"
                raise ValueError(f"{path}, sentence {number}: {wanted}, got {unknown!r}")
            rows.append({"tokens": list(sentence.words), "tags": tags})
        return rows


EWT_POS = EwtTask(name="ewtpos", tags=PARTS_OF_SPEECH)
EWT_RELATIONS = EwtTask(name="ewtrelations", tags=RELATIONS, layer="relations")
