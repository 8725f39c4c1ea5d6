"""The atlas of a word: sentences out of files, layouts, clusters, maps of planted senses."""

import gzip
import logging
import math
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from jat_graph.probes import Atlas, Context, WordReader, context_atlas, read_contexts
from jat_graph.probes.atlas import LayerMap
from jat_graph.probes.clusters import (
    PRIOR,
    SURELY,
    TELLING,
    directions,
    find_clusters,
    lay_out,
    telling_words,
)
from jat_graph.probes.contexts import cut_text, find_uses, plain
from tests.probes.support import minilm, write_wordnet

TREE = """# text = Rivers run .
1\tRivers\triver\tNOUN\tNNS\t_\t2\tnsubj\t_\t_
2\trun\trun\tVERB\tVBP\t_\t0\troot\t_\t_
3\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

"""
BROWN = (
    "\n\n\tThe/at dog/nn runs/vbz ./.\nWhy/wrb ?/. ?/.\n\n\n\t``/`` Run/vb ''/'' !/. !/.\n"
    "\n\tFather's/nn$-tl */* is/bez fw/fw-in nil/nil --/--\n"
)
MONEY = ("money", "loan", "cash", "account", "credit", "savings", "debt", "interest", "deposit")
RIVER = ("river", "water", "stream", "fishing", "boat", "mud", "reeds", "canal", "lake")


def words_of(contexts: Any) -> list[str]:
    return [" ".join(own.words) for own in contexts]


def of_texts(*sentences: str) -> list[Context]:
    return [Context(tuple(own.split())) for own in sentences]


# --- sentences -----------------------------------------------------------------------------------


def test_text_is_cut_into_sentences_and_words() -> None:
    text = 'He said: "I don\'t know." Then he ran.\n\nA new paragraph without a point\n\nEnd.'
    assert words_of(cut_text(text)) == [
        'He said : " I do n\'t know . "',
        "Then he ran .",
        "A new paragraph without a point",
        "End .",
    ]
    text = " = Title = \n \n It weighs 0 @.@ 7 kg . A well @-@ known <unk> . \n"  # as in WikiText
    found = words_of(cut_text(text + " = = Part = = \n Yes . \n"))
    assert found == ["It weighs 0.7 kg .", "A well-known … .", "Yes ."]


def test_abbreviations_are_learned_from_the_text() -> None:
    text = (
        "He met Mr. Smith here. They saw it there. Then Mr. Brown came. Here is a dog. "
        "Nobody knew Mr. Jones at all. It was there before. She came and liked it. All went. "
    )
    assert words_of(cut_text(text))[:2] == ["He met Mr .", "Smith here ."]
    found = words_of(cut_text(text * 200))
    assert "He met Mr. Smith here ." in found and "Then Mr. Brown came ." in found


def test_brown_gives_parts_of_speech_and_no_doubled_marks(tmp_path: Path) -> None:
    path = tmp_path / "brown.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("brown/cats.txt", "ca01 news\n")
        archive.writestr("brown/ca01", BROWN)
    assert list(read_contexts(path)) == [
        Context(("The", "dog", "runs", "."), ("DET", "NOUN", "VERB", "PUNCT")),
        Context(("Why", "?"), ("ADV", "PUNCT")),
        Context(('"', "Run", '"', "!"), ("PUNCT", "VERB", "PUNCT", "PUNCT")),
        Context(
            ("Father's", "*", "is", "fw", "nil", "--"),
            ("NOUN", "PART", "AUX", "ADP", "X", "PUNCT"),
        ),
    ]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"brown\.zip must be the Brown corpus as NLTK packs it"):
        list(read_contexts(path))


@pytest.mark.slow
def test_nearly_all_tags_of_brown_are_known(data_dir: Path) -> None:
    found = read_contexts(data_dir / "nltk" / "brown.zip")
    tags = [tag for _, own in zip(range(3000), found, strict=False) for tag in own.tags or ()]
    assert len(tags) > 50_000 and tags.count("X") < 0.002 * len(tags)


def test_semcor_gives_senses_and_their_parts_of_speech(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nltk.data.path", [str(tmp_path)])
    write_wordnet(tmp_path / "corpora" / "wordnet")
    folder = tmp_path / "semcor" / "brown1" / "tagfiles"
    folder.mkdir(parents=True)
    (folder / "br-a01").write_text(
        "<s snum=1>\n<wf cmd=ignore pos=DT>The</wf>\n"
        "<wf cmd=done pos=NN lemma=bark wnsn=1 lexsn=1:20:00::>bark</wf>\n<punc>.</punc>\n</s>\n"
    )
    assert list(read_contexts(tmp_path / "semcor")) == [
        Context(("The", "bark", "."), (None, "NOUN", None), (None, "bark%1:20:00::", None))
    ]


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"Packed text."))
    (tmp_path / "c.conllu").write_text(TREE, encoding="utf-8")
    (tmp_path / "a.tokens").write_text("Plain text .", encoding="utf-8")
    (tmp_path / "README.md").write_text("Nothing.", encoding="utf-8")
    found = list(read_contexts(tmp_path))
    assert words_of(found) == ["Plain text .", "Packed text .", "Rivers run ."]
    assert found[2].tags == ("NOUN", "VERB", "PUNCT")
    several = read_contexts([tmp_path / "c.conllu", str(tmp_path / "a.tokens")])
    assert words_of(several) == ["Rivers run .", "Plain text ."]


def test_what_cannot_be_read_is_named_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="paths must name a file or folder, got none"):
        list(read_contexts([]))
    with pytest.raises(ValueError, match="must hold files ending in"):
        list(read_contexts(tmp_path))
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(b"text " * 99)[:-9])
    with pytest.raises(ValueError, match=r"a\.txt\.gz is cut off or damaged: "):
        list(read_contexts(packed))
    with pytest.raises(FileNotFoundError, match=r"exist, got .*none"):
        list(read_contexts([packed, tmp_path / "none.txt"]))  # before the damaged one is read


# --- uses of a word ------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["bank", "Bank", "banks", "BANK", "ban", "straße", "STRASSE", "é", "e\u0301", "."]
)


@given(WORDS, st.lists(st.lists(WORDS, min_size=1, max_size=4).map(tuple), min_size=1))
def test_uses_are_those_of_the_slow_search(word: str, sentences: list[tuple[str, ...]]) -> None:
    wanted: dict[str, tuple[tuple[str, ...], int]] = {}
    for words in sentences:
        for index, own in enumerate(words):
            letters = "".join(letter for letter in plain("".join(words)) if letter.isalnum())
            if plain(own) == plain(word) and letters not in wanted:
                wanted[letters] = (words, index)
    some = [Context(words) for words in sentences]
    if not wanted:
        with pytest.raises(ValueError, match=rf"none of {len(sentences)}$"):
            find_uses(word, some, 99, 0)
        return
    found, different, read = find_uses(word, iter(some), 99, 0)
    assert [(own.words, index) for own, index in found] == list(wanted.values())
    assert (different, read) == (len(wanted), len(sentences))


def test_of_two_copies_the_first_counts_and_a_sample_is_even() -> None:
    first = Context(("New_York", "bank", "."), senses=(None, "bank.n.01", None))
    found = find_uses("bank", [first, *of_texts("New York bank ; ; .", "a bank")], 10, 0)
    assert found[0][0][0] is first and found[1] == 2
    assert find_uses("ΣΑΣ", of_texts("a σας b"), 10, 0)[0][0][1] == 1
    some = of_texts(*(f"bank {number}" for number in range(1000)))
    samples = [find_uses("bank", some, 100, seed) for seed in (0, 0, 1)]
    assert samples[0] == samples[1] != samples[2]
    rows = [int(own.words[1]) for own, _ in samples[0][0]]
    assert rows == sorted(set(rows)) and len(rows) == 100 and samples[0][1] == 1000
    quarters = [sum(250 * part <= row < 250 * (part + 1) for row in rows) for part in range(4)]
    assert min(quarters) > 10


# --- layouts -------------------------------------------------------------------------------------


def clouds(seed: int, layers: int = 2, points: int = 24) -> list[np.ndarray]:
    """Two groups that drift apart from layer to layer."""
    generator = np.random.default_rng(seed)
    groups = np.repeat([-1.0, 1.0], points // 2)[:, None]
    noise = generator.normal(size=(points, 8))
    return [directions(noise + 3 * (layer + 1) * groups) for layer in range(layers)]


def spread(points: np.ndarray) -> float:
    return float(np.sqrt((points**2).sum(1).mean()))


def check_degenerate(points: int) -> None:
    """A layer without spread lies in one place, and the next one is laid out afresh."""
    states = np.random.default_rng(0).normal(size=(points, 3))
    line = np.linspace(-1, 1, points)[:, None] * np.ones((1, 3))
    rows = [np.zeros_like(states), directions(states), np.zeros_like(states), directions(line)]
    found, _ = lay_out(rows, 0)
    assert np.isfinite(found).all() and not found[0].any() and not found[2].any()
    assert np.isclose(spread(found[1]), 1) and np.isclose(spread(found[3]), 1)


@pytest.mark.slow
def test_umap_gives_the_same_again_and_keeps_groups_apart() -> None:
    """One test, since UMAP compiles itself in every process."""
    pytest.importorskip("umap")
    rows = clouds(0, layers=3)
    (found, method), (again, _) = lay_out(rows, 3), lay_out(rows, 3)
    assert method == "UMAP" and np.array_equal(found, again)
    assert not np.array_equal(found, lay_out(rows, 4)[0])
    for layer in found:
        assert np.isclose(spread(layer), 1) and np.allclose(layer.mean(0), 0, atol=1e-6)
        first, second = layer[:12], layer[12:]
        apart = np.linalg.norm(first.mean(0) - second.mean(0))
        assert apart > 2 * max(spread(own - own.mean(0)) for own in (first, second))
    sides = found[:, :12].mean(1)
    assert (sides[1:] @ sides[0] > 0).all()  # each layer begins where the last one ended
    check_degenerate(5)


def test_without_umap_it_is_pca_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    rows = clouds(2)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(8, 8)))[0]
    with caplog.at_level(logging.WARNING):
        found, method = lay_out([*rows, rows[1] @ turn], 0)
    assert method == "PCA" and found.shape == (3, 24, 2)
    assert len(caplog.messages) == 1
    assert "pip install 'jat_graph[atlas]'" in caplog.messages[0] and "\n" not in caplog.messages[0]
    values = np.linalg.svd(rows[0] - rows[0].mean(0), compute_uv=False)
    shares = np.linalg.svd(found[0], compute_uv=False)
    assert np.isclose(shares[0] / shares[1], values[0] / values[1])
    assert np.allclose(found[2], found[1])  # a layout that was turned is turned back
    for points in (5, 6):
        check_degenerate(points)


# --- clusters ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 3, 5])
def test_planted_groups_are_found_the_largest_first(number: int) -> None:
    generator = np.random.default_rng(number)
    planted = np.repeat(np.arange(number), range(6, 6 + number))
    points = directions(np.eye(8)[planted] + generator.normal(0, 0.05, (len(planted), 8)))
    labels, silhouette = find_clusters(points, 0)
    assert silhouette > 0.7 and np.array_equal(labels, number - 1 - planted)
    assert np.array_equal(find_clusters(points, 0)[0], labels)


@pytest.mark.parametrize("points", [np.zeros((7, 3)), np.eye(2)[[0, 0, 0, 1, 1]], np.zeros((1, 1))])
def test_what_has_no_parts_is_one_cluster(points: np.ndarray) -> None:
    labels, silhouette = find_clusters(points, 0)
    assert set(labels) == {0} and math.isnan(silhouette)


@given(st.lists(st.tuples(st.sets(st.sampled_from("abcdef")), st.integers(0, 2)), min_size=1))
def test_words_that_tell_are_those_of_the_definition(pairs: list[tuple[set[str], int]]) -> None:
    contexts = of_texts(*(" ".join(["bank", *sorted(some), "."]) for some, _ in pairs))
    labels = np.array([label for _, label in pairs])
    found = telling_words("Bank", [own.words for own in contexts], labels)
    assert set(found) == set(labels.tolist())
    often = {w: sum(w in some for some, _ in pairs) for w in "abcdef"}
    often = {word: number for word, number in often.items() if number >= 2}
    total = sum(often.values())
    for label in found:
        scores = {}
        inside = {w: sum(w in some for some, own in pairs if own == label) for w in often}
        n, m = sum(inside.values()), total - sum(inside.values())
        for word, number in often.items():
            prior = PRIOR * number / total
            y, z = inside[word] + prior, number - inside[word] + prior
            if len(often) > 1 and len(found) > 1:
                odds = math.log(y / (n + PRIOR - y)) - math.log(z / (m + PRIOR - z))
                scores[word] = odds / math.sqrt(1 / y + 1 / z)
        wanted = sorted((w for w in scores if scores[w] > SURELY), key=lambda w: -scores[w])
        assert len(found[label]) == len(wanted[:TELLING])
        assert all(scores[a] >= scores[b] - 1e-9 for a, b in pairwise(found[label]))


def test_shares_are_of_the_known_with_wilsons_interval() -> None:
    labels = np.array([0, 0, 0, 0, 2, 2, 5])
    own = LayerMap(3, np.zeros((7, 2)), labels, math.nan, {0: [], 2: [], 5: ["mud"]})
    rows = own.rows({"sense": ["n", "n", "v", None, "v", "v", None], "tag": [None] * 7})
    assert [row["cluster"] for row in rows] == ["1", "3", "6", "all"]
    assert [row["sentences"] for row in rows] == [4, 2, 1, 7]
    assert [row["sense"] for row in rows] == ["n", "v", None, ""]
    assert all(row["tag"] is None and row["tag known"] == 0 for row in rows)
    z = norm.ppf(0.975)
    for row, n, p in zip((rows[0], rows[1], rows[3]), (3, 2, 5), (2 / 3, 1.0, 4 / 5), strict=True):
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        found = [row[f"sense {name}"] for name in ("known", "share", "low", "high")]
        assert np.allclose(found, [n, p, middle - half, middle + half])


# --- the atlas -----------------------------------------------------------------------------------


def planted() -> list[Context]:
    """Sentences with a bank, whose sense only a neighbour tells."""
    found = []
    for sense, kind, names in (("finance", "NOUN", MONEY), ("slope", "PROPN", RIVER)):
        for name in names:
            for text in (f"The bank had {name} and more {name} .", f"We saw {name} at the bank ."):
                tags = tuple(kind if word == "bank" else None for word in text.split())
                senses = tuple(sense if word == "bank" else None for word in text.split())
                found.append(Context(tuple(text.split()), tags, senses))
    return found


@pytest.fixture(scope="module")
def reader(minilm_path: str, tmp_path_factory: pytest.TempPathFactory) -> WordReader:
    return minilm(tmp_path_factory.mktemp("states"), minilm_path)


@pytest.fixture(scope="module")
def atlas(reader: WordReader) -> Atlas:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "umap", None)  # it compiles itself for long
        return context_atlas(reader, "Bank", planted(), layers=[6, 0])


def test_planted_senses_are_apart_and_named_by_their_words(atlas: Atlas) -> None:
    table = atlas.table
    last = table[(table["layer"] == 6) & (table["cluster"] != "all")]
    assert set(last["sense"]) == {"finance", "slope"}
    whole = table[(table["layer"] == 6) & (table["cluster"] == "all")].iloc[0]
    assert whole["sense share"] >= 0.9 and whole["sense low"] > 0.5
    assert whole["part of speech share"] == whole["sense share"]
    assert whole["silhouette"] > 0.1 and whole["sentences"] == sum(last["sentences"]) == 36
    assert atlas.settings["sentences_read"] == 36 and atlas.settings["layers"] == [0, 6]


def test_every_kind_has_a_picture_and_a_map(atlas: Atlas, tmp_path: Path) -> None:
    kinds = ["cluster", "part of speech", "sense"]
    assert list(atlas.figures) == [f"atlas-{kind.replace(' ', '-')}" for kind in kinds]
    assert [own.title for own in atlas.views] == [f"Bank by {kind}" for kind in kinds]
    for view in atlas.views:
        assert [layer.name for layer in view.layers] == ["embeddings", "layer 6"]
        for point in view.points:
            assert point.span is not None
            assert point.sentence[slice(*point.span)] == point.label == "bank"
    by_sense = atlas.views[2].layers[1]
    assert set(by_sense.groups) == {"finance", "slope"}
    numbers = {label.text.split(":")[0] for label in by_sense.labels}
    assert numbers == set(atlas.views[0].layers[1].groups)
    names = {path.name for path in atlas.save(tmp_path)}
    assert {"atlas.md", "atlas.json", "atlas.html", "atlas-sense.svg"} <= names
    assert "We saw money at the bank" in (tmp_path / "atlas.html").read_text(encoding="utf-8")


def test_what_no_model_can_take_is_left_out_and_nothing_known_leaves_clusters_alone(
    reader: WordReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    some = [*(Context(own.words) for own in planted()[:8]), Context(("bank", *["word"] * 600))]
    found = context_atlas(reader, "bank", some, layers=[1])
    assert found.settings["sentences_found"] == 9 and found.settings["sentences_shown"] == 8
    assert np.isfinite(found.views[0].layers[0].positions).all()
    assert list(found.figures) == ["atlas-cluster"] and len(found.views[0].points) == 8
    assert not any(name.startswith(("sense", "part")) for name in found.table.columns)


@pytest.mark.parametrize(
    ("word", "options", "wrong"),
    [
        ("light", {}, "word must stand in a sentence, got 'light' in none of 36"),
        ("money", {}, "word must stand in 5 sentences that fit the model, got 'money' in 2"),
        ("a bank", {}, "word must be one word without spaces, got 'a bank'"),
        ("bank", {"most": 4}, "most must be at least 5, got 4"),
        ("bank", {"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_bad_input_is_one_line(
    word: str, options: dict[str, Any], wrong: str, reader: WordReader
) -> None:
    with pytest.raises(ValueError, match=wrong):
        context_atlas(reader, word, planted(), **options)
