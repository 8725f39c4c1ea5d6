"""The example that compares ways to choose keys, on tiny models and on heads drawn at random."""

import json
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from transformers import AutoModel

from examples import few_keys, where_to_look
from examples.where_to_look import (
    METHODS,
    Heads,
    bounds_of_blocks,
    clusters_of_2020,
    nystromformer,
    tree,
)
from jat_graph import JatConfig, tree_graph
from jat_graph.nn import ClusterConv
from tests.examples.conftest import WORDS, Call

LENGTH, KEYS = 64, 16


def draw_heads() -> Heads:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(3, 2, LENGTH, 8, generator=generator, dtype=torch.float64)
    return Heads(*(1.5 * drawn), scale=0.4)


@pytest.fixture
def run(tmp_path: Path, call: Call) -> Call:
    """Return what runs the command on a text."""

    def command(*words: object) -> None:
        file = tmp_path / "text.txt"
        file.write_text(" ".join(WORDS[(3 * i + i // 7) % len(WORDS)] for i in range(300)))
        given = ["--file", file, "--length", "64", "--shares", "0.125", "0.25"]
        call(where_to_look, *given, *words)

    return command


@pytest.mark.slow
def test_a_model_is_compared_in_a_table_a_file_and_a_picture(
    tiny_model: str, run: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, picture = tmp_path / "a.json", tmp_path / "a.png"
    run("--model", tiny_model, "--texts", "2", "--json", file, "--plot", picture)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(name) for line, name in zip(lines[3:], METHODS, strict=True))
    content = json.loads(file.read_text("utf-8"))
    (scores,) = content["models"].values()
    assert content["settings"]["texts"] == 2 and str(tmp_path) not in file.read_text("utf-8")
    assert all([*rows] == ["8", "16"] for rows in scores.values())
    chosen = ("random keys", "pair graph", "vertical lines", "means of blocks", "stones")
    for keys in ("8", "16"):
        rows = {name: own[keys] for name, own in scores.items()}
        for text in range(2):
            most = rows["oracle"]["mass"][text]
            assert all(rows[name]["mass"][text] <= most + 1e-9 for name in chosen)
            assert all(own["read"][text] * LENGTH < 1.2 * int(keys) for own in rows.values())
    assert imread(picture).std() > 0.05


@pytest.mark.parametrize("method", METHODS)
def test_a_model_reads_few_keys_of_each_text_of_a_batch(method: str, tiny_model: str) -> None:
    name = f"few:{method}:0.4"
    few_keys.register(name)
    model = AutoModel.from_pretrained(tiny_model, attn_implementation="sdpa").eval()
    ids, mask = torch.randint(model.config.vocab_size, (2, 45)), torch.ones(2, 45).long()
    mask[1, 30:] = 0
    with torch.no_grad():
        dense = model(ids, mask)[0]
        model.set_attn_implementation(name)
        torch.manual_seed(0)
        both, one = model(ids, mask)[0], []
        torch.manual_seed(0)
        if method not in ("random keys", "clusters of 2020"):
            one = [model(ids[1:, :30])[0]]
    assert not torch.allclose(both[0], dense[0], atol=1e-4)
    for alone in one:
        torch.testing.assert_close(both[1:, :30], alone, rtol=0, atol=1e-5)


def test_few_keys_are_those_of_the_comparison() -> None:
    heads = draw_heads()
    for method, find in METHODS.items():
        torch.manual_seed(0)
        weights, _ = find(heads, KEYS)
        torch.manual_seed(0)
        got = few_keys.read(heads, method, KEYS / LENGTH)
        torch.testing.assert_close(got, (weights @ heads.value).to(got.dtype), rtol=0, atol=1e-6)
    assert torch.equal(few_keys.read(heads, "window", 0.999), heads.attention @ heads.value)


def test_the_tree_is_that_of_the_library() -> None:
    heads = draw_heads()
    weights, exact = tree(heads, KEYS)
    config = JatConfig.clustered(keys=8, size=4, segment=8, window=1)
    parts = heads.query[None], heads.key[None]
    graphs = tree_graph(*parts, config=config, is_causal=False, scale=0.4)
    expected = ClusterConv()(heads.value.flatten(0, 1), graphs).view_as(heads.value)
    torch.testing.assert_close(weights @ heads.value, expected, rtol=1e-9, atol=1e-9)
    source, target = graphs["token", "read_by", "token"].edge_index
    read = torch.zeros(2 * LENGTH, LENGTH, dtype=torch.bool)
    read[target, source % LENGTH] = True
    assert torch.equal(exact.flatten(0, 1), read)
    alone, _ = tree(heads, KEYS, rest=False)
    assert torch.equal(alone > 0, exact)


@pytest.mark.parametrize("name", METHODS)
def test_weights_sum_to_one(name: str) -> None:
    heads = draw_heads()
    weights, _ = METHODS[name](heads, KEYS)
    far = 0.1 if name == "Nyströmformer" else 1e-6  # its inverse is near enough, and no better
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, LENGTH).double(), rtol=far, atol=0)


def test_bounds_are_above_all_scores_of_their_block() -> None:
    heads = draw_heads()
    bounds, scores = bounds_of_blocks(heads), heads.scores / heads.scale
    assert (bounds >= scores - 1e-9).all() and not torch.allclose(bounds, scores)


def test_with_all_keys_the_methods_of_others_are_attention() -> None:
    heads = draw_heads()
    weights, _ = clusters_of_2020(heads, LENGTH)
    torch.testing.assert_close(weights, heads.attention)
    near = torch.linspace(0, 6.0, LENGTH).double()  # scores that fall with the distance
    query = torch.stack([near.cos(), near.sin()], -1)[None]
    alike = Heads(9 * query, 9 * query, query, scale=1.0)
    found, _ = nystromformer(alike, 2 * LENGTH)
    assert (found - alike.attention).abs().max() < 0.02


def test_a_decoder_is_refused(tiny_decoder: str, run: Call) -> None:
    with pytest.raises(SystemExit, match="model must be an encoder, got GPT2Attention"):
        run("--model", tiny_decoder)
