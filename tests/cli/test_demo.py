"""The demonstration on a tiny model, the sentence pair on the real one, and what is learnt."""

import json
from pathlib import Path

import pytest

from jat_graph.cli import demo
from jat_graph.cli.demo import ARMS, PAIR, demonstrate, look_at_pair
from jat_graph.config import JatConfig, PairGraph
from tests.cli.conftest import run
from tests.training.conftest import tiny_model

__all__ = ["run", "tiny_model"]


def test_it_writes_what_it_found(tiny_model: str, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    found = demonstrate(tiny_model, folder, pairs=2, steps=4, progress=False)
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert content["text"] == PAIR
    assert list(content["curves"]) == list(content["arms"]) == list(ARMS)
    for arm, curve in content["curves"].items():
        assert [point["step"] for point in curve] == [1, 2, 3, 4]
        assert curve[-1]["accuracy_2"] == found.accuracy(arm, 2)
    assert content["chance"] == {str(size): found.task.chance(size) for size in (1, 2)}
    for picture in content["pictures"]:
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert sorted(file.name for file in folder.iterdir()) == [
        "curves.png",
        "head.png",
        "results.json",
    ]


def test_the_same_seed_learns_the_same(tiny_model: str, tmp_path: Path) -> None:
    options = {"pairs": 2, "steps": 2, "progress": False}
    curves = [
        demonstrate(tiny_model, tmp_path / name, seed=seed, **options).curves
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    ]
    assert curves[0] == curves[1] != curves[2]


def test_the_command_shows_what_was_learnt(tiny_model: str, tmp_path: Path, run) -> None:
    folder = tmp_path / "demo"
    options = ("--output", folder, "--pairs", "2", "--steps", "2")
    shown = " ".join(run("demo", "--model", tiny_model, *options).output.split())
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    for curve in content["curves"].values():
        assert f"{curve[-1]['accuracy_2']:.1%}" in shown
    assert f"{content['chance']['2']:.1%}" in shown
    assert "It does not show that texts ask for it." in shown


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--pairs", "0"), "pairs must be at least 1, got 0"),
        (("--steps", "0"), "steps must be at least 1, got 0"),
        (("--seed", "-1"), "seed must be at least 0, got -1"),
    ],
)
def test_wrong_options_are_named_and_leave_no_folder(
    option: tuple[str, str], words: str, tmp_path: Path, run
) -> None:
    with pytest.raises(ValueError, match=words):
        run("demo", "--output", tmp_path / "demo", *option)
    assert not (tmp_path / "demo").exists()


def test_jumps_of_the_pair_are_the_words_asked_for(tiny_model: str, tmp_path: Path) -> None:
    jumps, picture = look_at_pair(
        tiny_model, JatConfig(PairGraph(threshold=4.0), heads=4), tmp_path / "head.png"
    )
    assert jumps
    for pair in jumps:
        assert {pair.jump.query.text, pair.jump.key.text} == {"computer", "pencil"}
        assert pair.jump.stones
    gains = [pair.jump.gain for pair in jumps]
    assert gains == sorted(gains, reverse=True)
    assert picture.exists()


def test_it_says_so_if_no_head_joins_the_words(
    tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run
) -> None:
    strict = JatConfig(PairGraph(threshold=1e9), heads=4)
    assert look_at_pair(tiny_model, strict, tmp_path / "head.png")[0] == ()
    monkeypatch.setattr(demo, "LOOKED_AT", strict)
    options = ("--output", tmp_path / "demo", "--pairs", "1", "--steps", "1")
    shown = run("demo", "--model", tiny_model, *options).output
    assert "No head joins computer and pencil" in shown


def test_minilm_joins_computer_and_pencil(minilm_path: str, tmp_path: Path) -> None:
    """At ρ = 14 without calibration: a few heads, each through a stepping stone."""
    config = JatConfig(PairGraph(threshold=14.0), heads=12)
    jumps, _ = look_at_pair(minilm_path, config, tmp_path / "head.png")
    heads = {(pair.layer, pair.head) for pair in jumps}
    assert 3 < len(heads) < 60
    assert all(pair.jump.stones for pair in jumps)
