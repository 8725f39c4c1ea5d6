"""WordNet, SemCor and evaluation sets, from files written by hand and from the real ones."""

import io
import re
import tarfile
from dataclasses import astuple
from pathlib import Path
from typing import Any

import nltk.data
import pytest

from jat_graph.probes import open_wordnet, read_evaluation, read_semcor
from tests.probes.support import KEYS, write_wordnet


def test_senses_come_in_their_order_with_their_keys(small_wordnet: Any) -> None:
    for (lemma, pos), keys in KEYS.items():
        assert small_wordnet.senses(lemma, pos) == keys, (lemma, pos)
        assert all(small_wordnet.definition(key) == "a gloss" for key in keys)
    assert small_wordnet.senses("nothing", "n") == ()
    assert small_wordnet.senses("barks", "n") == ()  # no lemma, though nltk knows what it is of


@pytest.mark.slow
def test_nltk_comes_first_then_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    if Path("/usr/share/wordnet").exists():
        assert open_wordnet().reader.get_version() == "3.0"
    else:
        with pytest.raises(ValueError, match=r"got none in the usual places: .* nltk\.download"):
            open_wordnet()
    write_wordnet(tmp_path / "debian", "3.7")
    write_wordnet(tmp_path / "corpora" / "wordnet", "3.8")
    assert open_wordnet().reader.get_version() == "3.8"
    assert open_wordnet(tmp_path / "debian").reader.get_version() == "3.7"
    (tmp_path / "debian" / "index.adv").unlink()
    with pytest.raises(ValueError, match=r"got none in .*debian: .* nltk\.download"):
        open_wordnet(tmp_path / "debian")


def test_the_real_one_has_the_names_of_its_files(wordnet: Any) -> None:
    assert wordnet.senses("bank", "n")[0] == "bank%1:17:01::"
    assert wordnet.senses("peculiar", "a")[1] == "peculiar%5:00:00:specific:00"
    names = {lemma.key(): lemma.synset().lexname() for lemma in wordnet.reader.lemmas("bank")}
    assert names["bank%1:17:01::"] == "noun.object"
    assert names["bank%2:40:00::"] == "verb.possession"


SEMCOR = """<contextfile concordance=brown>
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


def write_semcor(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = folder / "semcor3.0" / "brown1" / "tagfiles" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "semcor3.0"


def test_words_and_their_senses_are_read(tmp_path: Path, small_wordnet: Any) -> None:
    first, second = read_semcor(write_semcor(tmp_path, {"br-a01": SEMCOR}), small_wordnet)
    assert " ".join(first.words) == "The Book of R&D barked `` hot over-billed books & bark on"
    assert tuple(map(astuple, first.marked)) == (
        ("book", "n", ("book%1:06:01::",), (1, 2, 3)),
        ("bark", "v", ("bark%2:32:00::",), (4,)),
        ("bill", "a", ("bill%5:00:01:dark:02",), (7,)),
        ("bark", "n", ("bark%1:11:00::", "bark%1:20:00::"), (10,)),
    )
    assert second.words == ("lark",)
    assert second.marked[0].pos == "r"
    assert first.text == second.text
    assert first.text.endswith("br-a01")


def test_packed_and_unpacked_say_the_same(tmp_path: Path, small_wordnet: Any) -> None:
    texts = {"br-b02": SEMCOR, "br-a01": SEMCOR.replace("barked", "barking")}
    folder = write_semcor(tmp_path, texts)
    packed = tmp_path / "semcor.tar.gz"
    with tarfile.open(packed, "w:gz") as file:
        file.add(folder, "semcor3.0")
        note = tarfile.TarInfo("semcor3.0/README")
        note.size = 4
        file.addfile(note, io.BytesIO(b"<s>x"))
    open_, from_packed = (read_semcor(path, small_wordnet) for path in (folder, packed))
    assert [s.words for s in open_] == [s.words for s in from_packed]
    assert [s.marked for s in open_] == [s.marked for s in from_packed]
    assert open_[0].words[4] == "barking"  # in the order of their names
    assert len({s.text for s in from_packed}) == 2


def test_what_is_not_semcor_is_refused(tmp_path: Path, small_wordnet: Any) -> None:
    with pytest.raises(ValueError, match="must hold sentences of SemCor, got none"):
        read_semcor(tmp_path, small_wordnet)
    packed = tmp_path / "semcor.tar.gz"
    packed.write_bytes(b"no such thing")
    with pytest.raises(ValueError, match="must be SemCor's packed file or its folder"):
        read_semcor(packed, small_wordnet)
    folder = write_semcor(tmp_path, {"br-a01": SEMCOR * 50})
    with tarfile.open(packed, "w:gz") as file:
        file.add(folder, "semcor3.0")
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(ValueError, match="must be SemCor's packed file or its folder"):
        read_semcor(packed, small_wordnet)
    folder = write_semcor(tmp_path, {"br-a01": SEMCOR.replace("2:32:00", "2:32:07")})
    with pytest.raises(ValueError, match=r"br-a01 must have .* got 'bark%2:32:07::'"):
        read_semcor(folder, small_wordnet)
    with pytest.raises(FileNotFoundError):
        read_semcor(tmp_path / "nothing", small_wordnet)


@pytest.mark.slow
def test_two_real_texts(data_dir: Path, wordnet: Any, tmp_path: Path) -> None:
    with tarfile.open(data_dir / "wsd" / "semcor3.0.tar.gz") as file:
        members = [m for m in file if m.name.endswith(("br-a01", "br-r05"))]
        file.extractall(tmp_path, members, filter="data")
    texts = [path.read_text() for path in tmp_path.rglob("br-*")]
    found = read_semcor(tmp_path, wordnet)
    assert len(found) == sum(text.count("<s ") for text in texts)
    lines = re.findall(r"wnsn=(\S+) lexsn", " ".join(texts))
    assert sum(len(sentence.marked) for sentence in found) == sum(set(n) != {"0"} for n in lines)


SET = """<?xml version="1.0" encoding="UTF-8" ?>
<corpus lang="en" source="small">
<text id="d000">
<sentence id="d000.s000">
<wf lemma="the" pos="DET">The</wf>
<instance id="d000.s000.t000" lemma="book_bill" pos="NOUN">book bill</instance>
<wf lemma="&apos;" pos="VERB">&apos;s</wf>
<instance id="d000.s000.t001" lemma="Bark" pos="NOUN">barks</instance>
</sentence>
</text>
<text id="d001"><sentence id="d001.s000"><wf lemma="." pos=".">.</wf></sentence></text>
</corpus>
"""
GOLD = """d000.s000.t000 book_bill%1:06:00::
d000.s000.t001 bark%1:11:00:: bark%1:20:00::
"""


def write_set(folder: Path, text: str = SET, keys: str = GOLD) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "small.data.xml").write_text(text, encoding="utf-8")
    (folder / "small.gold.key.txt").write_text(keys, encoding="utf-8")
    return folder


def test_instances_have_all_their_senses(tmp_path: Path, small_wordnet: Any) -> None:
    path = write_set(tmp_path / "set")
    for given in (tmp_path, path, path / "small.data.xml"):
        found = read_evaluation(given, small_wordnet)
        assert list(found) == ["small"]
    first, second = found["small"]
    assert first.words == ("The", "book", "bill", "'s", "barks")
    assert tuple(map(astuple, first.marked)) == (
        ("book_bill", "n", ("book_bill%1:06:00::",), (1, 2)),
        ("bark", "n", ("bark%1:11:00::", "bark%1:20:00::"), (4,)),
    )
    assert (first.text, second.text, second.marked) == ("d000", "d001", ())


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        (SET.replace("<corpus", "<!DOCTYPE x><corpus"), GOLD, "must declare no document type"),
        (SET[:300], GOLD, r"small\.data\.xml must be XML"),
        (SET.replace("instance", "wf"), GOLD, "must hold sentences with instances, got none"),
        (SET, GOLD.replace("t001", "t002"), r"instance 'd000\.s000\.t001' must have a sense"),
        (SET, GOLD.replace("11:00", "11:09"), r"key\.txt, line 2 .* got 'bark%1:11:09::'"),
        (SET, GOLD + "d000.s000.t009\n", "line 3 must be an instance and its senses"),
        (SET.replace('"NOUN">b', '"PRON">b'), GOLD, "pos must be one of NOUN, .* got 'PRON'"),
        (SET.replace(">barks<", "> <"), GOLD, "must have a word, got none"),
    ],
)
def test_broken_sets_get_one_line(
    tmp_path: Path, small_wordnet: Any, text: str, keys: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_evaluation(write_set(tmp_path / "set", text, keys), small_wordnet)
    assert "\n" not in str(caught.value)
    for path in (tmp_path / "set" / "some.xml", tmp_path.parent / "none"):
        with pytest.raises(ValueError, match="must be evaluation sets, got no"):
            read_evaluation(path, small_wordnet)


@pytest.mark.slow
def test_the_first_sense_is_as_good_as_published(data_dir: Path, wordnet: Any) -> None:
    """Raganato et al. 2017, table 2, have these F1 of WordNet's first sense."""
    published = {"senseval2": (2282, 66.8), "senseval3": (1850, 66.2), "semeval2007": (455, 55.2)}
    found = read_evaluation(data_dir / "wsd" / "Evaluation_Datasets", wordnet)
    assert set(found) == set(published)
    for name, (number, share) in published.items():
        words = [word for sentence in found[name] for word in sentence.marked]
        right = [wordnet.senses(word.lemma, word.pos)[0] in word.senses for word in words]
        assert len(words) == number
        assert 100 * sum(right) / number == pytest.approx(share, abs=0.05)
