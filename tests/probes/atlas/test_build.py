"""The atlas of a word, with a real model and planted senses."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModel, AutoTokenizer

from jat_graph.probes import Atlas, Context, context_atlas

MONEY = ("money", "loan", "cash", "account", "credit", "savings", "debt", "interest", "deposit")
RIVER = ("river", "water", "stream", "fishing", "boat", "mud", "reeds", "canal", "lake")


def planted() -> list[Context]:
    """Sentences with a bank, whose sense only a neighbour tells."""
    found = []
    for sense, kind, names in (("finance", "NOUN", MONEY), ("slope", "PROPN", RIVER)):
        for name in names:
            for words in (f"The bank had {name} and more {name} .", f"We saw {name} at the bank ."):
                tags = tuple(kind if word == "bank" else None for word in words.split())
                senses = tuple(sense if word == "bank" else None for word in words.split())
                found.append(Context(tuple(words.split()), tags, senses))
    return found


@pytest.fixture(scope="module")
def minilm(minilm_path: str) -> tuple[Any, Any]:
    return AutoModel.from_pretrained(minilm_path), AutoTokenizer.from_pretrained(minilm_path)


@pytest.fixture(autouse=True)
def without_umap(monkeypatch: pytest.MonkeyPatch) -> None:
    """UMAP compiles itself for long; it has a test of its own."""
    monkeypatch.setitem(sys.modules, "umap", None)


@pytest.fixture(scope="module")
def atlas(minilm: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    folder = tmp_path_factory.mktemp("states")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "umap", None)
        return context_atlas("Bank", planted(), *minilm, folder, layers=[6, 0])


def test_planted_senses_are_apart_and_named_by_their_words(atlas: Atlas) -> None:
    table = atlas.table
    last = table[(table["layer"] == 6) & (table["cluster"] != "all")]
    assert set(last["sense"]) == {"finance", "slope"}
    whole = table[(table["layer"] == 6) & (table["cluster"] == "all")].iloc[0]
    assert whole["sense share"] >= 0.9 and whole["sense low"] > 0.5
    assert whole["part of speech share"] == whole["sense share"]
    assert whole["silhouette"] > 0.1 and whole["sentences"] == 36
    assert sum(last["sentences"]) == 36


def test_settings_and_caption_say_what_was_read(atlas: Atlas) -> None:
    assert atlas.settings == {
        "word": "Bank",
        "sentences_read": 36,
        "sentences_found": 36,
        "sentences_shown": 36,
        "layers": [0, 6],
        "layout": "PCA",
        "seed": 0,
    }
    assert "36 sentences with 'Bank', of 36 among 36" in atlas.caption
    assert "Of 36 uses whose sense is known, 50% are " in atlas.caption
    assert "UMAP" not in atlas.caption


def test_every_kind_has_a_picture_and_a_map(atlas: Atlas) -> None:
    assert list(atlas.figures) == ["atlas-cluster", "atlas-part-of-speech", "atlas-sense"]
    assert [own.title for own in atlas.views] == [
        "Bank by cluster",
        "Bank by part of speech",
        "Bank by sense",
    ]
    for view in atlas.views:
        assert [layer.name for layer in view.layers] == ["embeddings", "layer 6"]
        for point in view.points:
            assert point.span is not None
            assert point.sentence[slice(*point.span)] == point.label == "bank"
    by_sense = atlas.views[2].layers[1]
    assert set(by_sense.groups) == {"finance", "slope"}
    assert {label.text.split(":")[0] for label in by_sense.labels} == set(
        atlas.views[0].layers[1].groups
    )


def test_the_same_call_gives_the_same(
    atlas: Atlas, minilm: tuple[Any, Any], tmp_path: Path
) -> None:
    again = context_atlas("Bank", planted(), *minilm, tmp_path, layers=[0, 6])
    assert again.table.equals(atlas.table) and again.views == atlas.views


def test_files_are_written(atlas: Atlas, tmp_path: Path) -> None:
    names = {path.name for path in atlas.save(tmp_path)}
    wanted = {"atlas.md", "atlas.json", "atlas.html", "atlas-cluster.png", "atlas-sense.svg"}
    assert wanted <= names
    assert "We saw money at the bank" in (tmp_path / "atlas.html").read_text(encoding="utf-8")


def test_what_no_model_can_take_is_left_out(minilm: tuple[Any, Any], tmp_path: Path) -> None:
    some = [*planted()[:8], Context(("bank", *["word"] * 600))]
    found = context_atlas("bank", some, *minilm, tmp_path, layers=[1])
    assert found.settings["sentences_found"] == 9 and found.settings["sentences_shown"] == 8
    assert np.isfinite(found.views[0].layers[0].places).all()
    assert list(found.figures) == ["atlas-cluster", "atlas-part-of-speech", "atlas-sense"]


def test_nothing_known_leaves_clusters_alone(minilm: tuple[Any, Any], tmp_path: Path) -> None:
    some = [Context(own.words) for own in planted()[:8]]
    found = context_atlas("bank", some, *minilm, tmp_path, layers=[1], most=6)
    assert list(found.figures) == ["atlas-cluster"] and len(found.views[0].points) == 6
    assert not any(name.startswith(("sense", "part")) for name in found.table.columns)


@pytest.mark.parametrize(
    ("word", "options", "wrong"),
    [
        ("light", {}, r"^word must stand in a sentence, got 'light' in none of 36$"),
        ("money", {}, r"^word must stand in 5 sentences, got 'money' in 2$"),
        ("a bank", {}, r"^word must be one word without spaces, got 'a bank'$"),
        ("bank", {"most": 4}, r"^most must be at least 5, got 4$"),
        ("bank", {"layers": []}, r"^layers must be one or more indices from 0, got \[\]$"),
        ("bank", {"layers": [7]}, r"^layers must be at most 6, got 7$"),
        ("bank", {"seed": -1}, r"^seed must be at least 0, got -1$"),
    ],
)
def test_bad_input_is_one_line(
    word: str, options: dict[str, Any], wrong: str, minilm: tuple[Any, Any], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=wrong):
        context_atlas(word, planted(), *minilm, tmp_path, **options)
