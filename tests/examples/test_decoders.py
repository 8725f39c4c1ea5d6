"""The small decoders: a recipe of a few steps, and reading fewer keys."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from matplotlib.image import imread

from examples import decoder_reading, decoders
from examples.causal_reading import METHODS, FewKeys, Slab, rows_of_clusters, share_read
from examples.decoder_reading import CLUSTERS, DENSE
from examples.tasks.needle import ASKED, FACT, KINDS, QUESTION, VALUES, draw_test, draw_training
from jat_graph import clustered_attention

LENGTH, BLOCK, KEYS, SCALE = 320, 16, 8, 0.4


def heads(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 1.5 * torch.randn(3, 1, 2, LENGTH, 8, generator=generator, dtype=torch.float64)


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", [script.__name__, *words])
    script.main()


@pytest.mark.parametrize("task", ["characters", "words", "needle"])
def test_a_decoder_is_trained_and_reads_fewer_keys(
    task: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "input.txt").write_text("To be, or not to be.\n" * 1000)
    for name in ("valid", "test"):
        article = " = Title = \n" + " it is a word or two" * 1000
        (tmp_path / f"{name}.txt").write_text(article * 2)
    words = ["--task", task, "--data_dir", str(tmp_path), "--output", str(tmp_path)]
    monkeypatch.setitem(decoders.RECIPES, task, decoders.Recipe(((2, 1, 64), (1, 1, 128))))
    trained = [*words, "--seeds", "1", "--keys", "4"]
    run(decoders, monkeypatch, *trained)
    first = json.loads(capsys.readouterr().out)
    run(decoders, monkeypatch, *trained)  # what is there is not made again
    assert json.loads(capsys.readouterr().out) == first
    assert first["keys"] == 4 and len(first["train_losses"]) == 3

    monkeypatch.setattr(decoder_reading, "SIZES", ((16, 4), (64, 64)))
    file, picture = tmp_path / "a.jsonl", tmp_path / "a.png"
    asked = ["--models", str(tmp_path / f"{task}-clusters-4-16-0"), "--data_dir", str(tmp_path)]
    asked += ["--json", str(file), "--tokens", "128", "--plot", str(picture)]
    run(decoder_reading, monkeypatch, *asked)
    rows = [*map(json.loads, file.read_text().splitlines())]
    assert {row["method"] for row in rows} == {DENSE, CLUSTERS, *METHODS}
    number = len(rows)
    cases = {row["case"] for row in rows}
    assert cases == ({f"{kind} 128" for kind in KINDS} if task == "needle" else {f"{task} 128"})
    assert all(row["more"] == row["changed"] == 0 for row in rows if row["method"] == DENSE)
    assert all(("right" in row) == (task == "needle") for row in rows)
    run(decoder_reading, monkeypatch, *asked)
    assert len(file.read_text().splitlines()) == number
    assert imread(picture).std() > 0.05
    capsys.readouterr()
    run(decoder_reading, monkeypatch, "--json", str(file))
    # Models that were trained densely have tables of their own.
    assert f"{min(cases)[:-4]} by clusters " in capsys.readouterr().out


@pytest.mark.parametrize("method", METHODS)
def test_later_tokens_change_nothing_before(method: str) -> None:
    query, key, value = heads()
    few = FewKeys(method, KEYS, BLOCK)
    before = few(query, key, value, SCALE)
    query, key, value = (torch.cat([x[:, :, :150], 1 - x[:, :, 150:]], 2) for x in heads())
    after = few(query, key, value, SCALE)
    assert torch.equal(before[:, :, :150], after[:, :, :150])
    assert not torch.equal(before, after)


@pytest.mark.parametrize("method", METHODS)
def test_so_many_keys_are_read(method: str) -> None:
    query, key, value = heads()
    slab = Slab(query[0], key[0], 0, BLOCK, SCALE)
    chosen = FewKeys(method, KEYS, BLOCK).choose(slab) & (slab.back >= 0)
    share = float(chosen.sum() / (slab.back >= 0).sum() / 2)
    assert share == pytest.approx(share_read(KEYS, BLOCK, LENGTH), rel=0.03)
    exact = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=SCALE)
    every = FewKeys(method, LENGTH, BLOCK)(query, key, value, SCALE)
    torch.testing.assert_close(every, exact)


def test_the_formula_of_clusters_is_the_librarys() -> None:
    query, key, value = heads()
    slab = Slab(query[0], key[0], 0, BLOCK, SCALE)
    exact = FewKeys("clusters, nothing elsewhere", KEYS, BLOCK).choose(slab)
    scores = slab.scores.where(exact | (slab.back < 0), rows_of_clusters(slab, KEYS))
    read = decoders.by_clusters(KEYS, BLOCK)(query, key, value, SCALE)
    torch.testing.assert_close(scores.softmax(-1) @ value[0], read[0])
    settings = {"keys": KEYS, "block": BLOCK, "dense_below": 0, "scale": SCALE}
    assert torch.equal(read, clustered_attention(query, key, value, is_causal=True, **settings))


def test_facts_are_told_before_they_are_asked_for() -> None:
    torch.manual_seed(0)
    drawn = [draw_training(4, 64), *(draw_test(kind, 4, 1024) for kind in KINDS)]
    for tokens, answers, positions in drawn:
        assert (positions.diff() > 0).all() and 0 < (answers >= 0).sum()
        for row, place in (answers >= 0).nonzero().tolist():
            key, value = tokens[row, place] - QUESTION, answers[row, place]
            told = (tokens[row] == FACT + VALUES * key + value).nonzero().flatten()
            assert len(told) == 1 and told[0] < place
    others = [(tokens >= FACT).sum(1).tolist() for tokens, *_ in drawn[1:]]
    assert others == [[16] * 4, [64] * 4, [16] * 4]
    before = [
        ((tokens >= QUESTION) & (tokens < QUESTION + 64))[:, :-ASKED].sum() for tokens, *_ in drawn
    ]
    assert before[1] == before[2] == 0 and before[3] == 4 * 128


def test_bad_input_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="decoders: error: task must be one of characters, char"):
        run(decoders, monkeypatch, "--task", "none", "--output", str(tmp_path))
