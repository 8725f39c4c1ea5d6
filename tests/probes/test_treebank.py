"""Treebanks: what is read of them, and what is refused."""

import gzip
from pathlib import Path

import pytest

from jat_graph.probes import Sentence, read_treebank

DOGS = """\
# text = Dogs don't bark.
1\tDogs\tdog\tNOUN\tNNS\t_\t4\tnsubj:outer\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t_\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t_\t_
4\tbark\tbark\tVERB\tVB\t_\t0\troot\t_\t_
4.1\tbark\tbark\tVERB\tVB\t_\t_\t_\t_\t_

"""
YES = "1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_\n\n"


def word(number: int, head: object) -> str:
    return f"{number}\tw\tw\tX\tX\t_\t{head}\tdep\t_\t_\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bank.conllu"


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_words_and_trees_are_read(ending: str, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / f"bank.conllu{ending}"
    # Comments alone are no sentence, and a mark in the middle comes of files that were joined.
    content = f"# newdoc\n\n{DOGS}\ufeff{YES}".encode(encoding)
    path.write_bytes(gzip.compress(content) if ending else content)
    dogs, yes = read_treebank(path)
    assert dogs == Sentence(
        ("Dogs", "do", "n't", "bark"),
        ("NOUN", "AUX", "PART", "VERB"),
        (3, 3, 3, -1),
        ("nsubj:outer", "aux", "advmod", "root"),
    )
    assert (dogs.root, dogs.edges, len(dogs)) == (3, [(0, 3), (1, 3), (2, 3)], 4)
    assert (yes.root, yes.edges) == (0, [])


def test_some_are_kept(path: Path) -> None:
    path.write_text((DOGS + YES) * 3)
    assert [len(sentence) for sentence in read_treebank(path, most=3)] == [4, 1, 4]
    assert [len(sentence) for sentence in read_treebank(path, lengths=range(2, 9))] == [4] * 3
    assert len(read_treebank(path, most=2, lengths=range(1, 2))) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (word(1, 0) + word(2, 0), "a tree must have one root, got 2"),
        (word(1, 2) + word(2, 1), "a tree must have one root, got 0"),
        (word(1, 0) + word(2, 3) + word(3, 2), "a tree must have no cycle, got one at word 2"),
        (word(1, 0) + word(2, 7), "heads must be words 1 to 2, got 7"),
        (word(1, 0) + word(2, "_"), "each word must have a head, got none for 'w'"),
        ("1\tw\tw\tX\n", "each word must have the column deprel, got '1 w w X'"),
    ],
)
def test_a_broken_tree_is_named(content: str, said: str, path: Path) -> None:
    path.write_text(f"{YES}{content}\n")
    with pytest.raises(ValueError, match=rf"bank.conllu, sentence 2: {said}$"):
        read_treebank(path)


@pytest.mark.parametrize("content", ["one\ttwo\n\n", "no tree at all\n\n", word(1, "9" * 5000)])
def test_another_format_is_refused_in_one_line(content: str, path: Path) -> None:
    path.write_text(YES + content)
    with pytest.raises(ValueError, match="must be CoNLL-U, after sentence 1") as caught:
        read_treebank(path)
    assert "\n" not in str(caught.value)


def test_nothing_and_damage_are_refused(path: Path, tmp_path: Path) -> None:
    path.write_text("")
    with pytest.raises(ValueError, match="must hold a sentence of the wanted lengths, got none"):
        read_treebank(path)
    path.write_bytes(YES.encode() + b"\xff\n")
    with pytest.raises(ValueError, match="must be UTF-8"):
        read_treebank(path)
    cut = tmp_path / "bank.conllu.gz"
    cut.write_bytes(gzip.compress(YES.encode() * 999)[:60])
    for content in (cut.read_bytes(), gzip.compress(YES.encode())[:12] + b"damage"):
        cut.write_bytes(content)
        with pytest.raises(ValueError, match="cut off or damaged"):
            read_treebank(cut)
    with pytest.raises(FileNotFoundError):
        read_treebank(tmp_path / "nosuch.conllu")


def test_the_real_treebank(data_dir: Path) -> None:
    path = data_dir / "ud_english_ewt" / "en_ewt-ud-dev.conllu.gz"
    found = read_treebank(path)
    assert (len(found), sum(map(len, found))) == (2001, 25147)
    assert {tag for sentence in found for tag in sentence.tags} <= set(
        "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split()
    )


def test_a_folder_has_one_file_of_a_split(tmp_path: Path) -> None:
    (tmp_path / "en_x-ud-dev.conllu").write_text(YES)
    assert len(read_treebank(tmp_path, split="dev")) == 1
    with pytest.raises(ValueError, match=r"must hold one file .*test.conllu.* got 0"):
        read_treebank(tmp_path, split="test")
    (tmp_path / "en_y-ud-dev.conllu.gz").write_bytes(b"")
    with pytest.raises(ValueError, match="got 2"):
        read_treebank(tmp_path, split="dev")
