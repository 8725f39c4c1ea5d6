"""SemCor, from a file written by hand and from the real one."""

import io
import re
import tarfile
from pathlib import Path

import pytest

from jat_graph.probes import MarkedWord, WordNet, read_semcor

TEXT = """<contextfile concordance=brown>
<context filename=br-a01 paras=yes>
<p pnum=1>
<s snum=1>
<wf cmd=ignore pos=DT>The</wf>
<wf cmd=done rdf=group pos=NNP lemma=book wnsn=2 lexsn=1:06:01:: pn=group>Book_of_R&D</wf>
<wf cmd=done pos=VB lemma=bark wnsn=1 lexsn=2:32:00::>barked</wf>
<punc>``</punc>
<wf cmd=done pos=JJ ot=notag>hot</wf>
<wf cmd=done sep="-" pos=JJ lemma=bill wnsn=1 lexsn=5:00:01:dark(p):02>over-billed</wf>
<wf cmd=done pos=NN lemma=book wnsn=0 lexsn=1:99:99::>books</wf>
<punc>&</punc>
<wf cmd=done pos=NN lemma=bark wnsn=2;1 lexsn=1:11:00::;1:20:00::>bark</wf>
<wf cmd=ignore dc=-1 pos=RB>on</wf>
</s>
</p>
<p pnum=2>
<s snum=2>
<wf cmd=done pos=RB lemma=lark wnsn=1 lexsn=4:02:00::>lark</wf>
</s>
<s snum=3>
</s>
</p>
</context>
</contextfile>
"""


def write(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = folder / "semcor3.0" / "brown1" / "tagfiles" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "semcor3.0"


def test_words_and_their_senses_are_read(tmp_path: Path, small_wordnet: WordNet) -> None:
    first, second = read_semcor(write(tmp_path, {"br-a01": TEXT}), small_wordnet)
    expected = "The Book of R&D barked `` hot over-billed books & bark on"
    assert " ".join(first.words) == expected
    assert first.marked == (
        MarkedWord("book", "n", ("book%1:06:01::",), (1, 2, 3)),
        MarkedWord("bark", "v", ("bark%2:32:00::",), (4,)),
        MarkedWord("bill", "a", ("bill%5:00:01:dark:02",), (7,)),
        MarkedWord("bark", "n", ("bark%1:11:00::", "bark%1:20:00::"), (10,)),
    )
    assert second.words == ("lark",)
    assert second.marked[0].pos == "r"
    assert first.text == second.text
    assert first.text.endswith("br-a01")


def test_packed_and_unpacked_say_the_same(tmp_path: Path, small_wordnet: WordNet) -> None:
    folder = write(tmp_path, {"br-b02": TEXT, "br-a01": TEXT.replace("barked", "barking")})
    packed = tmp_path / "semcor.tar.gz"
    with tarfile.open(packed, "w:gz") as file:
        file.add(folder, "semcor3.0")
        link = tarfile.TarInfo("semcor3.0/brown1/tagfiles/br-z")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        file.addfile(link)
        note = tarfile.TarInfo("semcor3.0/README")
        note.size = 4
        file.addfile(note, io.BytesIO(b"<s>x"))
    open_, from_packed = (read_semcor(path, small_wordnet) for path in (folder, packed))
    assert [s.words for s in open_] == [s.words for s in from_packed]
    assert [s.marked for s in open_] == [s.marked for s in from_packed]
    assert open_[0].words[4] == "barking"  # in the order of their names
    assert len({s.text for s in from_packed}) == 2


def test_a_sense_that_wordnet_lacks_is_named(tmp_path: Path, small_wordnet: WordNet) -> None:
    folder = write(tmp_path, {"br-a01": TEXT.replace("2:32:00", "2:32:07")})
    with pytest.raises(ValueError, match=r"br-a01 must have .* got 'bark%2:32:07::'"):
        read_semcor(folder, small_wordnet)


def test_what_is_not_semcor_is_refused(tmp_path: Path, small_wordnet: WordNet) -> None:
    with pytest.raises(ValueError, match="must hold sentences of SemCor, got none"):
        read_semcor(tmp_path, small_wordnet)
    packed = tmp_path / "semcor.tar.gz"
    packed.write_bytes(b"no such thing")
    with pytest.raises(ValueError, match="must be SemCor's packed file or its folder"):
        read_semcor(packed, small_wordnet)
    folder = write(tmp_path, {"br-a01": TEXT * 50})
    with tarfile.open(packed, "w:gz") as file:
        file.add(folder, "semcor3.0")
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(ValueError, match="must be SemCor's packed file or its folder"):
        read_semcor(packed, small_wordnet)
    with pytest.raises(FileNotFoundError):
        read_semcor(tmp_path / "nothing", small_wordnet)


def test_two_real_texts(data_dir: Path, wordnet: WordNet, tmp_path: Path) -> None:
    with tarfile.open(data_dir / "wsd" / "semcor3.0.tar.gz") as file:
        members = [m for m in file if m.name.endswith(("br-a01", "br-r05"))]
        file.extractall(tmp_path, members, filter="data")
    texts = [path.read_text() for path in tmp_path.rglob("br-*")]
    found = read_semcor(tmp_path, wordnet)
    assert len(found) == sum(text.count("<s ") for text in texts)
    lines = re.findall(r"wnsn=(\S+) lexsn", " ".join(texts))
    assert sum(len(sentence.marked) for sentence in found) == sum(set(n) != {"0"} for n in lines)
