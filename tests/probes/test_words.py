"""What a model makes of words, against loops over the tokens of one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from jat_graph import JatConfig
from jat_graph.hf import attach
from jat_graph.inspection import view_head
from jat_graph.probes import Sentence, WordReader, best_heads, structural_probe
from tests.data.support import attention_maps, tiny_tokenizer
from tests.hf.models import tiny_config, tiny_model
from tests.probes.support import random_sentences, tiny
from tests.probes.test_heads import slow_hit

WORDS = ("fook", "larking", "gark", "fillingly", "look", "barks")
TREE = Sentence(WORDS, ("NOUN",) * 6, (1, -1, 3, 1, 2, 3), ("a", "root", "b", "c", "d", "e"))


def words_of(sentence: tuple[str, ...]) -> list[list[int]]:
    """The tokens of each word."""
    words = tiny_tokenizer()([list(sentence)], is_split_into_words=True).word_ids(0)
    return [[n for n, word in enumerate(words) if word == own] for own in range(len(sentence))]


def word_maps(reader: WordReader, kind: str) -> dict[tuple[int, int], Tensor]:
    """What each head has for two words, from loops over their tokens."""
    model, tokens, found = reader.model, words_of(WORDS), {}
    if kind == "attention":
        _, rows, _ = attention_maps(model, tiny_tokenizer(), list(WORDS))
        maps = {
            (layer, head): own for layer, some in enumerate(rows) for head, own in enumerate(some)
        }
    else:
        maps = {}
        for layer, head in ((layer, head) for layer in range(3) for head in (0, 2)):
            options: dict[str, Any] = {"layer": layer, "head": head, "special_tokens": True}
            shown = view_head(model, tiny_tokenizer(), " ".join(WORDS), **options)
            maps[layer, head] = shown.weights
        assert any(own.any() for own in maps.values())
    for pair, own in maps.items():
        both = torch.zeros(len(tokens), len(tokens))
        for i, rows in enumerate(tokens):
            for k, columns in enumerate(tokens):
                both[i, k] = own[rows][:, columns].sum(1).mean()
        found[pair] = both
    return found


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["pairs", "stones"])
@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("kind", ["attention", "graph"])
def test_words_are_given_what_loops_say(kind: str, name: str, graph: str, tmp_path: Path) -> None:
    """Each word is of a relation of its own: the best head of it is that of the maps of loops."""
    config = tiny_config()
    if graph == "stones":
        keys = {"key_selection": "all"} if name == "llama" else {}
        config = JatConfig.stones(threshold=0.2, strength=0.5, heads=(0, 2), **keys)
    reader = tiny(tmp_path, attach(tiny_model(name), config))
    table = best_heads(reader, [TREE] * 4, maps=kind, least=1).table.set_index("relation")
    maps = word_maps(reader, kind)
    maps = {pair: own.masked_fill(own <= 0, -torch.inf) for pair, own in maps.items()}
    for word, head in TREE.edges:
        row = table.loc[TREE.relations[word]]
        hits = {
            (way, *pair): slow_hit(own[word].tolist(), word, head)
            for pair, given in maps.items()
            for way, own in (("dependent looks", given), ("head looks", given.T))
        }
        assert row["accuracy"] == pytest.approx(max(hits.values()))
        assert hits[row["way"], row["layer"], row["head"]] == pytest.approx(row["accuracy"])


def test_states_of_words_are_means_over_their_tokens(tmp_path: Path) -> None:
    model = tiny_model("bert")
    sets = random_sentences(5), random_sentences(5, 1), [TREE]
    structural_probe(tiny(tmp_path, model), *sets, layers=(2,), rank=1, epochs=1, controls=False)
    every = map(np.load, tmp_path.glob("*.npy"))
    (kept,) = (own[2] for own in every if own.ndim == 3 and own.shape[1] == len(TREE))
    encoded = tiny_tokenizer()([list(WORDS)], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**encoded, output_hidden_states=True).hidden_states[2][0]
    points = [states[own].mean(0).tolist() for own in words_of(WORDS)]
    np.testing.assert_allclose(kept, points, rtol=1e-4, atol=1e-5)


def test_a_base_keeps_how_it_computes_its_attention(tmp_path: Path) -> None:
    model = tiny_model("bert")
    model.set_attn_implementation("sdpa")
    found = best_heads(tiny(tmp_path / "sdpa", model), [TREE] * 4, least=1)
    assert model.config._attn_implementation == "sdpa"
    model.set_attn_implementation("eager")
    again = best_heads(tiny(tmp_path / "eager", model), [TREE] * 4, least=1)
    assert found.table.equals(again.table)


def test_what_cannot_be_read_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = tiny(tmp_path)
    with pytest.raises(ValueError, match="sentences must fit the model, got none that it can take"):
        best_heads(reader, random_sentences(2, most=99, least=99))
    table = best_heads(reader, [TREE] * 4, least=1).table
    files = set(tmp_path.iterdir())
    monkeypatch.setattr(type(reader.model), "forward", None)
    assert best_heads(reader, [TREE] * 4, least=1).table.equals(table)  # it was kept
    with pytest.raises(TypeError):
        best_heads(reader, random_sentences(4, least=4), least=1)
    assert set(tmp_path.iterdir()) == files  # and nothing is half-written
