"""Evaluation sets, from files written by hand and from the real ones."""

from pathlib import Path

import pytest

from jat_graph.probes import MarkedWord, WordNet, read_evaluation

TEXT = """<?xml version="1.0" encoding="UTF-8" ?>
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
KEYS = """d000.s000.t000 book_bill%1:06:00::
d000.s000.t001 bark%1:11:00:: bark%1:20:00::
"""


def write(folder: Path, text: str = TEXT, keys: str = KEYS) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "small.data.xml").write_text(text, encoding="utf-8")
    (folder / "small.gold.key.txt").write_text(keys, encoding="utf-8")
    return folder


def test_instances_have_all_their_senses(tmp_path: Path, small_wordnet: WordNet) -> None:
    path = write(tmp_path / "set")
    for given in (tmp_path, path, path / "small.data.xml"):
        found = read_evaluation(given, small_wordnet)
        assert list(found) == ["small"]
    first, second = found["small"]
    assert first.words == ("The", "book", "bill", "'s", "barks")
    assert first.marked == (
        MarkedWord("book_bill", "n", ("book_bill%1:06:00::",), (1, 2)),
        MarkedWord("bark", "n", ("bark%1:11:00::", "bark%1:20:00::"), (4,)),
    )
    assert (first.text, second.text, second.marked) == ("d000", "d001", ())


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        (TEXT.replace("<corpus", "<!DOCTYPE x><corpus"), KEYS, "must declare no document type"),
        (TEXT[:300], KEYS, r"small\.data\.xml must be XML"),
        (TEXT.replace("instance", "wf"), KEYS, "must hold sentences with instances, got none"),
        (TEXT, KEYS.replace("t001", "t002"), r"instance 'd000\.s000\.t001' must have a sense"),
        (TEXT, KEYS.replace("11:00", "11:09"), r"key\.txt, line 2 .* got 'bark%1:11:09::'"),
        (TEXT, KEYS + "d000.s000.t009\n", "line 3 must be an instance and its senses"),
        (TEXT.replace('"NOUN">b', '"PRON">b'), KEYS, "pos must be one of NOUN, .* got 'PRON'"),
        (TEXT.replace(">barks<", "> <"), KEYS, "must have a word, got none"),
    ],
)
def test_broken_sets_get_one_line(
    tmp_path: Path, small_wordnet: WordNet, text: str, keys: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read_evaluation(write(tmp_path / "set", text, keys), small_wordnet)
    assert "\n" not in str(caught.value)


def test_a_folder_without_sets_is_refused(tmp_path: Path, small_wordnet: WordNet) -> None:
    for path in (tmp_path, tmp_path / "some.xml"):
        with pytest.raises(ValueError, match=r"must be evaluation sets, got no \*\.data\.xml"):
            read_evaluation(path, small_wordnet)


def test_the_first_sense_is_as_good_as_published(data_dir: Path, wordnet: WordNet) -> None:
    """Raganato et al. 2017, table 2, have these F1 of WordNet's first sense."""
    published = {"senseval2": (2282, 66.8), "senseval3": (1850, 66.2), "semeval2007": (455, 55.2)}
    found = read_evaluation(data_dir / "wsd" / "Evaluation_Datasets", wordnet)
    assert set(found) == set(published)
    for name, (number, share) in published.items():
        words = [word for sentence in found[name] for word in sentence.marked]
        right = [wordnet.senses(word.lemma, word.pos)[0] in word.senses for word in words]
        assert len(words) == number
        assert 100 * sum(right) / number == pytest.approx(share, abs=0.05)
