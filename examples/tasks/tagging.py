"""Tags of words: named entities of WNUT-17 and CoNLL-2003, parts of speech and relations of EWT.

Reference:
    Derczynski et al., *Results of the WNUT2017 Shared Task on Novel and Emerging Entity
    Recognition*, W-NUT 2017; Tjong Kim Sang and De Meulder, *Introduction to the CoNLL-2003 Shared
    Task*, CoNLL 2003; Silveira et al., *A Gold Standard Dependency Corpus for English*, LREC 2014.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from datasets import Dataset

from examples.tasks.base import Task, find_file, reading, tag_rows
from examples.tasks.metrics import OUTSIDE, find_spans, score_classes, score_spans, write_tags
from jat_graph.core.files import read_text
from jat_graph.probes import read_treebank

# Those of Universal Dependencies, version 2.
PARTS_OF_SPEECH = tuple(
    "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split()
)
RELATIONS = tuple(
    "acl advcl advmod amod appos aux case cc ccomp clf compound conj cop csubj dep det discourse "
    "dislocated expl fixed flat goeswith iobj list mark nmod nsubj nummod obj obl orphan parataxis "
    "punct reparandum root vocative xcomp".split()
)


def bio_tags(types: Sequence[str]) -> tuple[str, ...]:
    """O, then B and I of each type."""
    return (OUTSIDE, *(f"{part}-{name}" for name in types for part in "BI"))


def read_columns(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Yield sentences: a word a line, its tag in the last column, a blank line after each."""
    words, tags = list[str](), list[str]()
    # Nothing but a line feed ends a line: some words are rare signs that would.
    for number, line in enumerate([*read_text(path).split("\n"), ""], start=1):
        text = line.strip(" \t\r")
        fields = text.split("\t") if "\t" in text else re.split(" +", text)
        if not text or fields[0] == "-DOCSTART-":
            if words:
                yield words, tags
            words, tags = [], []
        elif len(fields) < 2:
            raise ValueError(f"line {number} must have a word and a tag, got {text!r}")
        else:
            words.append(fields[0])
            tags.append(fields[-1])


def _entities(name: str, types: str, train: str, validation: str) -> Task:
    """A task of spans, whose files have BIO or IOB1."""
    files = {"train": train.split(), "validation": validation.split()}

    def read(data_dir: Path | None, split: str) -> Dataset:
        path = find_file(data_dir, name, *files[split])
        with reading(path, "columns of words and tags"):
            pairs = [(w, write_tags(find_spans(t), len(w))) for w, t in read_columns(path)]
            return tag_rows(pairs, bio_tags(types.split()))

    return Task(name, "tagging", read, score_spans, ("f1", "precision", "recall"))


def _words(name: str, column: str, tags: Sequence[str]) -> Task:
    """A task of UD English EWT: ``"tags"`` of its words, or ``"relations"`` without subtypes."""

    def read(data_dir: Path | None, split: str) -> Dataset:
        file = f"en_ewt-ud-{'dev' if split == 'validation' else split}.conllu"
        path = find_file(data_dir, "ud_english_ewt", file)
        trees = read_treebank(path)
        pairs = [(x.words, [t.partition(":")[0] for t in getattr(x, column)]) for x in trees]
        with reading(path, "Universal Dependencies"):
            return tag_rows(pairs, tags)

    splits = ("train", "validation", "test")
    return Task(name, "tagging", read, score_classes, ("accuracy",), splits)


_WNUT = "corporation creative-work group location person product"
TAGGING = (
    _entities("wnut17", _WNUT, "wnut17train.conll", "emerging.dev.conll"),
    _entities("conll2003", "LOC MISC ORG PER", "eng.train train.txt", "eng.testa valid.txt"),
    _words("ewtpos", "tags", PARTS_OF_SPEECH),
    _words("ewtrelations", "relations", RELATIONS),
)
