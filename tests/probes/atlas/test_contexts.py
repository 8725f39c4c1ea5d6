"""Sentences out of files of every kind."""

import gzip
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.probes import Context, open_wordnet, read_contexts
from jat_graph.probes.atlas.contexts import UNIVERSAL, cut_text, universal_tag

TREE = """# text = Rivers run .
1\tRivers\triver\tNOUN\tNNS\t_\t2\tnsubj\t_\t_
2\trun\trun\tVERB\tVBP\t_\t0\troot\t_\t_
3\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

"""
BROWN = "\n\n\tThe/at dog/nn runs/vbz ./.\nWhy/wrb ?/. ?/.\n\n\n\t``/`` Run/vb ''/'' !/. !/.\n"


def write_brown(path: Path, text: str = BROWN) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("brown/cats.txt", "ca01 news\n")
        archive.writestr("brown/ca01", text)
    return path


def words(contexts: object) -> list[str]:
    return [" ".join(own.words) for own in contexts]  # type: ignore[attr-defined]


# --- text ----------------------------------------------------------------------------------------


def test_text_is_cut_into_sentences_and_words() -> None:
    text = 'He said: "I don\'t know." Then he ran.\n\nA new paragraph without a point\n\nEnd.'
    assert words(cut_text(text)) == [
        'He said : " I do n\'t know . "',
        "Then he ran .",
        "A new paragraph without a point",
        "End .",
    ]


def test_abbreviations_are_learned_from_the_text() -> None:
    text = (
        "He met Mr. Smith here. They saw it there. Then Mr. Brown came. Here is a dog. "
        "Nobody knew Mr. Jones at all. It was there before. She came and liked it. All went. "
    )
    assert words(cut_text(text))[:2] == ["He met Mr .", "Smith here ."]
    found = words(cut_text(text * 200))
    assert "He met Mr. Smith here ." in found and "Then Mr. Brown came ." in found


def test_the_marks_of_wikitext_are_read() -> None:
    text = " = Title = \n \n It weighs 0 @.@ 7 kg . A well @-@ known <unk> . \n"
    text += " = = Part = = \n Yes . \n"
    found = words(cut_text(text))
    assert found == ["It weighs 0.7 kg .", "A well-known … .", "Yes ."]


@given(st.text())
def test_any_text_is_cut_into_words_without_spaces(text: str) -> None:
    for own in cut_text(text):
        assert own.words and own.tags is None and own.senses is None
        assert not any(set(word) & set(" \n\t") or not word for word in own.words)


# --- corpora -------------------------------------------------------------------------------------


def test_brown_gives_parts_of_speech_and_no_doubled_marks(tmp_path: Path) -> None:
    assert list(read_contexts(write_brown(tmp_path / "brown.zip"))) == [
        Context(("The", "dog", "runs", "."), ("DET", "NOUN", "VERB", "PUNCT")),
        Context(("Why", "?"), ("ADV", "PUNCT")),
        Context(('"', "Run", '"', "!"), ("PUNCT", "VERB", "PUNCT", "PUNCT")),
    ]


def test_a_brown_word_without_a_tag_is_named(tmp_path: Path) -> None:
    path = write_brown(tmp_path / "brown.zip", "The/at dog\n")
    with pytest.raises(ValueError, match=r"brown\.zip, ca01: each word must have a tag .*'dog'$"):
        list(read_contexts(path))


@pytest.mark.parametrize(
    ("tag", "wanted"),
    [
        ("nn", "NOUN"),
        ("nns$-tl", "NOUN"),
        ("fw-nn-hl", "NOUN"),
        ("np", "PROPN"),
        ("NNP", "PROPN"),
        ("NNS", "NOUN"),
        ("vbd", "VERB"),
        ("VBZ", "VERB"),
        ("bedz", "AUX"),
        ("jjr", "ADJ"),
        ("in", "ADP"),
        ("cs", "SCONJ"),
        ("PRP$", "PRON"),
        ("ppss", "PRON"),
        ("*", "PART"),
        ("--", "PUNCT"),
        ("``", "PUNCT"),
        (".", "PUNCT"),
        ("nil", "X"),
    ],
)
def test_tags_are_those_of_universal_dependencies(tag: str, wanted: str) -> None:
    assert universal_tag(tag) == wanted


def test_every_start_of_a_tag_is_found() -> None:
    assert all(universal_tag(start) == wanted for start, wanted in UNIVERSAL.items())


def test_nearly_all_tags_of_brown_are_known(data_dir: Path) -> None:
    found = read_contexts(data_dir / "nltk" / "brown.zip")
    tags = [tag for _, own in zip(range(3000), found, strict=False) for tag in own.tags or ()]
    assert len(tags) > 50_000 and tags.count("X") < 0.002 * len(tags)


def test_semcor_gives_senses_and_their_parts_of_speech(tmp_path: Path) -> None:
    folder = tmp_path / "semcor" / "brown1" / "tagfiles"
    folder.mkdir(parents=True)
    (folder / "br-a01").write_text(
        "<s snum=1>\n<wf cmd=ignore pos=DT>The</wf>\n"
        "<wf cmd=done pos=NN lemma=bank wnsn=1 lexsn=1:17:01::>bank</wf>\n<punc>.</punc>\n</s>\n"
    )
    try:
        found = list(read_contexts(tmp_path / "semcor"))
    except ValueError as error:
        pytest.skip(str(error))
    assert found == [
        Context(("The", "bank", "."), (None, "NOUN", None), (None, "bank%1:17:01::", None))
    ]
    assert open_wordnet().definition("bank%1:17:01::").startswith("sloping land")
    with pytest.raises(ValueError, match=r"sense keys of WordNet, got 'bank%9:17:01::'"):
        open_wordnet().definition("bank%9:17:01::")


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"Packed text."))
    (tmp_path / "c.conllu").write_text(TREE, encoding="utf-8")
    (tmp_path / "a.tokens").write_text("Plain text .", encoding="utf-8")
    (tmp_path / "README.md").write_text("Nothing.", encoding="utf-8")
    found = list(read_contexts(tmp_path))
    assert words(found) == ["Plain text .", "Packed text .", "Rivers run ."]
    assert found[2].tags == ("NOUN", "VERB", "PUNCT")
    several = read_contexts([tmp_path / "c.conllu", str(tmp_path / "a.tokens")])
    assert words(several) == ["Rivers run .", "Plain text ."]


def test_what_cannot_be_read_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^paths must name a file or folder, got none$"):
        list(read_contexts([]))
    with pytest.raises(ValueError, match=r"must hold files ending in \.txt, .*, got none$"):
        list(read_contexts(tmp_path))
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(b"text " * 99)[:-9])
    with pytest.raises(ValueError, match=r"a\.txt\.gz is cut off or damaged: "):
        list(read_contexts(packed))
    empty = tmp_path / "empty"
    empty.mkdir()
    for wrong, said in ((empty, "must hold files"), (tmp_path / "none.txt", "exist, got .*none")):
        with pytest.raises((ValueError, FileNotFoundError), match=said):
            list(read_contexts([packed, wrong]))  # before the damaged one is read
