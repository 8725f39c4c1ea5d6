"""The atlas of a word: sentences out of files, layouts, clusters, maps of planted senses."""

import gzip
import logging
import math
import sys
import zipfile
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
import torch
from scipy.stats import norm

from jat_graph.probes import Atlas, Context, WordReader, context_atlas, read_contexts
from tests.data.support import STEMS
from tests.probes.support import minilm, plant_states, tiny, write_wordnet

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


def cut(folder: Path, text: str) -> list[str]:
    (folder / "text.txt").write_text(text, encoding="utf-8")
    return words_of(read_contexts(folder / "text.txt"))


def of_texts(*sentences: str) -> list[Context]:
    return [Context(tuple(own.split())) for own in sentences]


# --- sentences -----------------------------------------------------------------------------------


def test_text_is_cut_into_sentences_and_words(tmp_path: Path) -> None:
    text = 'He said: "I don\'t know." Then he ran.\n\nA new paragraph without a point\n\nEnd.'
    assert cut(tmp_path, text) == [
        'He said : " I do n\'t know . "',
        "Then he ran .",
        "A new paragraph without a point",
        "End .",
    ]
    text = " = Title = \n \n It weighs 0 @.@ 7 kg . A well @-@ known <unk> . \n"  # as in WikiText
    found = cut(tmp_path, text + " = = Part = = \n Yes . \n")
    assert found == ["It weighs 0.7 kg .", "A well-known … .", "Yes ."]


def test_abbreviations_are_learned_from_the_text(tmp_path: Path) -> None:
    text = (
        "He met Mr. Smith here. They saw it there. Then Mr. Brown came. Here is a dog. "
        "Nobody knew Mr. Jones at all. It was there before. She came and liked it. All went. "
    )
    assert cut(tmp_path, text)[:2] == ["He met Mr .", "Smith here ."]
    found = cut(tmp_path, text * 200)
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
            ("Father's", "*", "is", "fw", "nil", "--"), ("NOUN", "PART", "AUX", "ADP", "X", "PUNCT")
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

WORDS = ("bank", "Bank", "banks", "BANK", "ban", "straße", "STRASSE", "é", "e\u0301", ".")


@pytest.fixture
def pca(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)  # it compiles itself for long


def plain(word: str) -> str:
    return normalize("NFC", normalize("NFC", word).casefold())


def uses(folder: Path, word: str, some: list[Context], **options: Any) -> tuple[list[Any], Any]:
    """The sentences shown with the word of each, and settings."""
    found = context_atlas(tiny(folder), word, iter(some), layers=[0], **options)
    points = found.views[0].points
    assert all(own.sentence[slice(*own.span or ())] == own.label for own in points)
    return [(own.sentence, own.span) for own in points], found.settings


@pytest.mark.usefixtures("pca")
@pytest.mark.parametrize("word", ["Bank", "straße", "é", "."])
def test_uses_are_those_of_the_slow_search(word: str, tmp_path: Path) -> None:
    draw, wanted = np.random.default_rng(0), {}
    sentences = [tuple(draw.choice(WORDS, draw.integers(1, 4)).tolist()) for _ in range(150)]
    for words in sentences:
        letters = "".join(letter for letter in plain("".join(words)) if letter.isalnum())
        at = next((n for n, own in enumerate(words) if plain(own) == plain(word)), None)
        if at is not None and letters not in wanted:
            start = len(" ".join((*words[:at], "")))
            wanted[letters] = (" ".join(words), (start, start + len(words[at])))
    found, told = uses(tmp_path, word, [Context(words) for words in sentences])
    assert found == list(wanted.values())
    assert (told["sentences_found"], told["sentences_read"]) == (len(wanted), len(sentences))


@pytest.mark.usefixtures("pca")
def test_of_two_copies_the_first_counts_and_a_sample_is_even(tmp_path: Path) -> None:
    some = of_texts("New_York bank ;", "New York bank ; ; .", *(f"bank {n}" for n in range(999)))
    samples = [uses(tmp_path, "bank", some, most=100, seed=seed) for seed in (0, 0, 1)]
    assert samples[0] == samples[1] and samples[0][0] != samples[2][0]
    assert samples[0][1]["sentences_found"] == 1000
    rows = [int(own.split()[1]) for own, _ in samples[0][0] if own.startswith("bank")]
    assert rows == sorted(set(rows)) and len(samples[0][0]) == 100
    quarters = [sum(250 * part <= row < 250 * (part + 1) for row in rows) for part in range(4)]
    assert min(quarters) > 10
    found, _ = uses(tmp_path, "ΣΑΣ", of_texts(*(f"{own} σας b" for own in "acdef")))
    assert found[0] == ("a σας b", (2, 5))


# --- clusters ------------------------------------------------------------------------------------

MARKS, REST = STEMS[1:6], STEMS[6:20]  # words that tell groups, and others


def in_groups(folder: Path, number: int) -> tuple[Atlas, list[int]]:
    """An atlas of planted groups of uses of one word, the smallest first, and the groups."""
    draw, noise = np.random.default_rng(number), torch.Generator().manual_seed(number)
    groups = np.repeat(np.arange(number), range(30, 30 + number)).tolist()
    contexts = []
    for row, group in enumerate(groups):
        often = [0.8 if n % number == group else 0.4 for n in range(len(REST))]
        others = [own for own, p in zip(REST, often, strict=True) if draw.random() < p]
        words = (STEMS[0], MARKS[group], *others, str(row))
        senses = (draw.choice(["one", "two", None], p=[0.6, 0.2, 0.2]), *[None] * (len(words) - 1))
        contexts.append(Context(words, ("NOUN", *[None] * (len(words) - 1)), senses))

    def states_of(words: Any) -> torch.Tensor:
        (group,) = (n for n, mark in enumerate(MARKS) if mark in words)
        return torch.eye(32)[group] + 0.02 * torch.randn(len(words), 32, generator=noise)

    reader = plant_states(tiny(folder), states_of)
    return context_atlas(reader, STEMS[0], contexts, layers=[1]), groups


@pytest.mark.usefixtures("pca")
@pytest.mark.parametrize("number", [2, 3, 5])
def test_planted_groups_are_found_the_largest_first(number: int, tmp_path: Path) -> None:
    atlas, groups = in_groups(tmp_path, number)
    found = [int(own) for own in atlas.views[0].layers[0].groups]
    assert found == [number - group for group in groups]
    table = atlas.table.set_index("cluster")
    assert table.loc["all", "silhouette"] > 0.7
    sentences = [own.sentence.split() for own in atlas.views[0].points]
    senses = [own or None for own in atlas.views[2].layers[0].groups]
    for label in sorted(set(found)):  # words that tell, by the definition
        row, scores = table.loc[str(label)], {}
        often = {w: sum(w in own for own in sentences) for w in sorted((*MARKS, *REST))}
        often = {word: count for word, count in often.items() if count >= 2}
        inside = {
            word: sum(word in own for own, at in zip(sentences, found, strict=True) if at == label)
            for word in often
        }
        total, n = sum(often.values()), sum(inside.values())
        for word, count in often.items():
            prior = 50 * count / total
            y, z = inside[word] + prior, count - inside[word] + prior
            odds = math.log(y / (n + 50 - y)) - math.log(z / (total - n + 50 - z))
            scores[word] = odds / math.sqrt(1 / y + 1 / z)
        wanted = sorted((w for w in scores if scores[w] > 1.96), key=lambda w: -scores[w])
        assert row["telling words"] == ", ".join(wanted[:6]) != ""
        own = [sense for sense, at in zip(senses, found, strict=True) if at == label and sense]
        check_share(row, own.count(row["sense"]), len(own))
        assert own.count(row["sense"]) == max(map(own.count, own))
        assert row["sentences"] == found.count(label) and row["part of speech share"] == 1
    most = sum(
        round(table.loc[str(n), "sense share"] * table.loc[str(n), "sense known"])
        for n in set(found)
    )
    check_share(table.loc["all"], most, sum(sense is not None for sense in senses))


def check_share(row: Any, most: int, n: int) -> None:
    """Shares are of the known, with Wilson's interval."""
    z, p = norm.ppf(0.975), most / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    found = [row[f"sense {name}"] for name in ("known", "share", "low", "high")]
    assert np.allclose(np.array(found, float), [n, p, middle - half, middle + half])


@pytest.mark.usefixtures("pca")
def test_what_has_no_parts_is_one_cluster_in_one_place(tmp_path: Path) -> None:
    reader = plant_states(tiny(tmp_path), lambda words: torch.ones(len(words), 32))
    atlas = context_atlas(reader, "bark", of_texts(*(f"bark {own}" for own in REST)), layers=[1])
    assert (
        atlas.table["cluster"].tolist() == ["1", "all"] and atlas.table["silhouette"].isna().all()
    )
    (layer,) = atlas.views[0].layers
    assert not np.array(layer.positions).any() and set(layer.groups) == {"1"}


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


def check_layout(atlas: Atlas, method: str) -> None:
    """Layers have one size around 0, and in the last one senses are apart."""
    layers = [np.array(own.positions) for own in atlas.views[0].layers]
    assert atlas.settings["layout"] == method
    for layer in layers:
        assert np.isclose((layer**2).sum(1).mean(), 1) and np.allclose(layer.mean(0), 0, atol=1e-6)
    sides = [layer[:18].mean(0) - layer[18:].mean(0) for layer in layers]
    assert np.linalg.norm(sides[1]) > 0.8
    assert sides[0] @ sides[1] > 0  # a layer begins where the last one ended


@pytest.mark.slow
def test_umap_gives_the_same_again_and_keeps_groups_apart(reader: WordReader) -> None:
    pytest.importorskip("umap")
    first, again, other = (
        context_atlas(reader, "Bank", planted(), layers=[4, 6], seed=seed) for seed in (3, 3, 4)
    )
    check_layout(first, "UMAP")
    both = [own.views[0].layers[1].positions for own in (first, again, other)]
    assert both[0] == both[1] != both[2]


def test_without_umap_it_is_pca_and_one_line_says_so(
    reader: WordReader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with caplog.at_level(logging.WARNING):
        check_layout(context_atlas(reader, "Bank", planted(), layers=[4, 6]), "PCA")
    assert len(caplog.messages) == 1
    assert "pip install 'jat_graph[atlas]'" in caplog.messages[0] and "\n" not in caplog.messages[0]


def test_planted_senses_are_apart_on_pictures_and_maps(atlas: Atlas, tmp_path: Path) -> None:
    table = atlas.table
    last = table[(table["layer"] == 6) & (table["cluster"] != "all")]
    assert set(last["sense"]) == {"finance", "slope"}
    whole = table[(table["layer"] == 6) & (table["cluster"] == "all")].iloc[0]
    assert whole["sense share"] >= 0.9 and whole["sense low"] > 0.5
    assert whole["part of speech share"] == whole["sense share"]
    assert whole["silhouette"] > 0.1 and whole["sentences"] == sum(last["sentences"]) == 36
    assert atlas.settings["sentences_read"] == 36 and atlas.settings["layers"] == [0, 6]
    kinds = ["cluster", "part of speech", "sense"]
    assert list(atlas.figures) == [f"atlas-{kind.replace(' ', '-')}" for kind in kinds]
    assert [own.title for own in atlas.views] == [f"Bank by {kind}" for kind in kinds]
    for view in atlas.views:
        assert [layer.name for layer in view.layers] == ["embeddings", "layer 6"]
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
