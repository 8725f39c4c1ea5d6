"""Senses of words, from files written by hand and from the real ones."""

from pathlib import Path

import nltk.data
import pytest

from jat_graph.probes import WordNet, open_wordnet
from jat_graph.probes.meaning import wordnet as module
from tests.probes.meaning.support import KEYS, write_wordnet


def test_senses_come_in_their_order_with_their_keys(small_wordnet: WordNet) -> None:
    for (lemma, pos), keys in KEYS.items():
        assert small_wordnet.senses(lemma, pos) == keys, (lemma, pos)
    assert small_wordnet.senses("nothing", "n") == ()
    assert small_wordnet.senses("barks", "n") == ()  # no lemma, though nltk knows what it is of


@pytest.mark.parametrize(
    "key", ["bark%1:20:01::", "lark%1:20:00::", "nothing%1:03:00::", "bark", "bark%9:03:00::", ""]
)
def test_a_key_that_is_not_there_is_named_with_its_file(small_wordnet: WordNet, key: str) -> None:
    small_wordnet.check_key("bark%1:20:00::", "here")
    with pytest.raises(ValueError, match=r"here must have sense keys") as caught:
        small_wordnet.check_key(key, "here")
    message = str(caught.value)
    assert repr(key) in message and "3.0" in message and small_wordnet.root in message
    assert "\n" not in message


def test_a_folder_that_is_not_there_names_the_cure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"got none in .*none-here: install .* nltk\.download"):
        open_wordnet(tmp_path / "none-here")
    (write_wordnet(tmp_path) / "data.adv").unlink()
    with pytest.raises(ValueError, match=r"got no data\.adv: install .* nltk\.download"):
        open_wordnet(tmp_path)


def test_nltk_comes_first_then_debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setattr(module, "DEBIAN", tmp_path / "debian")
    with pytest.raises(ValueError, match="got none in the usual places"):
        open_wordnet()
    write_wordnet(tmp_path / "debian", "3.7")
    assert open_wordnet().reader.get_version() == "3.7"
    write_wordnet(tmp_path / "corpora" / "wordnet", "3.8")
    assert open_wordnet().reader.get_version() == "3.8"
    assert open_wordnet(tmp_path / "debian").reader.get_version() == "3.7"


def test_the_real_one_has_the_names_of_its_files(wordnet: WordNet) -> None:
    assert len(module.LEXICOGRAPHERS) == 45
    assert wordnet.senses("bank", "n")[0] == "bank%1:17:01::"
    assert wordnet.senses("peculiar", "a")[1] == "peculiar%5:00:00:specific:00"
    reader = wordnet.reader
    names = {lemma.key(): lemma.synset().lexname() for lemma in reader.lemmas("bank")}
    assert names["bank%1:17:01::"] == "noun.object"
    assert names["bank%2:40:00::"] == "verb.possession"
    assert {s.lexname() for s in reader.synsets("hail", "v")} >= {"verb.weather"}
    assert reader.synsets("broken", "a")[0].lexname().startswith("adj.")
