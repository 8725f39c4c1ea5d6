"""Layers, heads and depths of a paper's model, on a model of another size."""

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.config import JatConfig, PairGraph
from jat_graph.hf import TripletConfig
from jat_graph.lab.studies import GridArm
from jat_graph.lab.studies.arms import build_heads, resolve_depth, scale_count, scale_layers
from jat_graph.training import BothHeads
from tests.lab.studies.support import small_grid

PIECES = ("1-4/12", "5-8/12", "9-12/12")


@pytest.mark.parametrize(
    ("spec", "layers", "expected"),
    [
        ("1-4/12", 12, (0, 1, 2, 3)),
        ("9-12/12", 12, (8, 9, 10, 11)),
        ("1-4/12", 6, (0, 1)),
        ("5-8/12", 6, (2, 3)),
        ("9-12/12", 6, (4, 5)),
        ("1-6/12", 6, (0, 1, 2)),
        ("7-12/12", 6, (3, 4, 5)),
        ("1-6/12", 3, (0, 1)),
        ("7-12/12", 3, (2,)),
        ("5-8/12", 2, (1,)),
        ("2,3,7,8,11/12", 12, (1, 2, 6, 7, 10)),
        ("2,3,7,8,11/12", 6, (0, 1, 3, 5)),
        ("1-3, 8-10 / 12", 24, (0, 1, 2, 3, 4, 5, 14, 15, 16, 17, 18, 19)),
        ("12/12", 1, (0,)),
    ],
)
def test_layers_are_scaled(spec: str, layers: int, expected: tuple[int, ...]) -> None:
    assert scale_layers(spec, layers) == expected


@given(st.integers(3, 100))
def test_neighbouring_pieces_part_a_model(layers: int) -> None:
    found = [layer for spec in PIECES for layer in scale_layers(spec, layers)]
    assert found == list(range(layers))


@given(st.integers(1, 100), st.integers(1, 24), st.integers(0, 24), st.integers(0, 24))
def test_any_piece_is_some_layers(layers: int, first: int, more: int, rest: int) -> None:
    found = scale_layers(f"{first}-{first + more}/{first + more + rest}", layers)
    assert found and set(found) <= set(range(layers))
    assert list(found) == list(range(found[0], found[-1] + 1))


@pytest.mark.parametrize("spec", ["1-4", "0-4/12", "5-4/12", "1-13/12", "a/12", "1,/12", "/12", ""])
def test_other_layers_are_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="layers must be indices or pieces of a model"):
        scale_layers(spec, 6)


def test_counts_are_scaled() -> None:
    assert [scale_count("heads", "2/12", size) for size in (12, 16, 6, 4, 1)] == [2, 3, 1, 1, 1]
    for spec in ("0/12", "13/12", "2", "x/12"):
        with pytest.raises(ValueError, match="heads must be a number or a share, as '2/12'"):
            scale_count("heads", spec, 12)


def test_depths_are_absolute_relative_or_shares() -> None:
    found = [resolve_depth(spec, 6) for spec in (None, 4, "-2", "+3", "8/12")]
    assert found == [None, 4, 4, 9, 4]
    with pytest.raises(ValueError, match="depth must leave a layer of the model's 6, got '-6'"):
        resolve_depth("-6", 6)
    with pytest.raises(ValueError, match=r"depth must be a number, '-3', .* got '3'"):
        resolve_depth("3", 6)


@pytest.mark.parametrize(
    ("heads", "settings", "expected"),
    [
        ("none", {}, None),
        ("paper", {}, JatConfig.paper()),
        ("paper", {"heads": "2/12", "layers": "1-6/12"}, JatConfig(heads=1, layers=(0, 1, 2))),
        ("paper", {"hop_weights": [0, 0, 1]}, JatConfig(hop_weights=(0.0, 0.0, 1.0))),
        ("efficient", {}, JatConfig(PairGraph(key_selection="significance"))),
        ("efficient", {"key_selection": "sampled"}, JatConfig(PairGraph(key_selection="sampled"))),
        ("released", {}, JatConfig.released(layers=(0, 1, 3, 5))),
        ("released", {"layers": [0]}, JatConfig.released(layers=(0,))),
        ("released-efficient", {}, JatConfig.released(efficient=True, layers=(0, 1, 3, 5))),
        ("stones", {"hops": 2}, JatConfig.stones(hops=2)),
        ("stones", {"heads": "1/3"}, JatConfig.stones(heads=2)),
        ("triplet", {}, TripletConfig()),
        ("triplet", {"heads": "12/12", "pairs": "sum"}, TripletConfig(heads=6, pairs="sum")),
        ("triplet", {"heads": "5/12"}, TripletConfig(heads=3)),
        ("triplet", {"heads": "1/12", "layers": "1-6/12"}, TripletConfig(layers=(0, 1, 2))),
    ],
)
def test_heads_on_a_model_of_six_layers_and_heads(
    heads: str, settings: dict[str, Any], expected: Any
) -> None:
    assert build_heads(GridArm("a", heads, settings), layers=6, heads=6) == expected


def test_triplets_stand_beside_jump_heads() -> None:
    beside = {"heads": "3/12", "layers": "1-6/12", "pairs": "sum"}
    arm = GridArm("a", "released", {"heads": "2/12"}, triplets=beside)
    jump = JatConfig.released(heads=1, layers=(0, 1, 3, 5))
    triplet = TripletConfig(heads=3, layers=(0, 1, 2), pairs="sum")
    assert build_heads(arm, layers=6, heads=6) == BothHeads(jump, triplet)
    chosen = build_heads(arm, layers=6, heads=6, threshold=9.0)
    assert chosen == BothHeads(jump.replace(threshold=9.0), triplet)
    small_grid(arms=[{"name": "base"}, asdict(arm)])


@pytest.mark.parametrize(
    "settings",
    [
        {"incidence": "hard", "sides": "positive", "self_weight": 0.5, "threshold": 1.5},
        {"incidence": "sigmoid", "soft_temperature": 0.3, "excluded_token_ids": [0, 2]},
        {"strength": ["learned", "learned", 0.0]},
        {"strength": [[1, 1, 0], ["learned", 0, 0.5]], "hops": 2},
    ],
)
def test_a_grid_says_all_of_stones(settings: dict[str, Any]) -> None:
    for kind, more in (("stones", {}), ("paper", {"graph": "stones", "heads": "all"})):
        arm = GridArm("a", kind, settings | more, {"strength_lr": 0.05})
        small_grid(arms=[asdict(arm)])
        assert build_heads(arm, layers=6, heads=6) == JatConfig.stones(**settings)


def test_scaled_triplets_fit_into_a_layer() -> None:
    arm = GridArm("a", "triplet", {"heads": "12/12"})
    found = [build_heads(arm, layers=2, heads=heads) for heads in (4, 8, 12, 16)]
    assert [config.heads for config in found if config] == [3, 6, 12, 15]


def test_the_released_layers_are_the_releaseds_own_on_twelve() -> None:
    assert build_heads(GridArm("a", "released"), layers=12, heads=12) == JatConfig.released()


def test_a_threshold_replaces_the_arms_own() -> None:
    arm = GridArm("a", "paper", {"heads": 2})
    assert build_heads(arm, layers=2, heads=4, threshold=9.0) == JatConfig(
        PairGraph(threshold=9.0), heads=2
    )


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ({"settings": {"heads": 2}}, "heads = 'none' takes no settings"),
        ({"density": 0.1}, "heads = 'none' takes no density"),
        (
            {"heads": "triplet", "tune": True},
            "triplet heads have no threshold, so they take no tune",
        ),
        ({"heads": "paper", "tune": True, "density": 0.1}, "tune and density exclude each other"),
        (
            {"heads": "paper", "tune": True, "settings": {"threshold": 4}},
            "tune and settings.graph.threshold exclude each other",
        ),
        (
            {"heads": "paper", "density": 0.1, "settings": {"vote_rate": 0.1}},
            "density and settings.graph.vote_rate exclude each other",
        ),
        *(
            (
                {"density": 0.1, **stones},
                "density must be left out with stones, whose threshold fits all heads",
            )
            for stones in (
                {"heads": "stones"},
                {"heads": "paper", "settings": {"graph": "stones"}},
            )
        ),
        ({"heads": "paper", "density": 1.5}, "density must be between 0 and 1, got 1.5"),
        ({"heads": "paper", "tune": "base"}, "name an arm with tune = true, got 'base'"),
        ({"heads": "paper", "settings": {"head": 2}}, "unknown config field 'head'"),
        ({"heads": "paper", "settings": {"threshold": -1}}, "threshold must be at least 0"),
        ({"heads": "paper", "settings": {"layers": "1-4"}}, "layers must be indices or pieces"),
        ({"heads": "paper", "settings": {"heads": "x/2"}}, "heads must be a number or a share"),
        ({"heads": "triplet", "settings": {"heads": 4}}, "heads must be a multiple of 3, got 4"),
        ({"heads": "triplet", "settings": {"threshold": 4}}, "known fields, got threshold"),
        ({"heads": "paper", "triplets": {"heads": 4}}, "heads must be a multiple of 3, got 4"),
        ({"heads": "triplet", "triplets": {}}, "heads = 'triplet' takes no triplets, which stand"),
        ({"triplets": {}}, "heads = 'none' takes no triplets, which stand beside jump heads"),
        (
            {"heads": "paper", "settings": {"pattern": "window:4"}, "triplets": {}},
            "pattern must be left out beside triplet heads, which read everywhere",
        ),
        (
            {"heads": "stones", "density": 0.1, "triplets": {}},
            "density must be left out with stones, whose threshold fits all heads",
        ),
        ({"options": {"data_dir": "x"}}, "options: unknown 'data_dir'"),
        ({"options": {"depth": "four"}}, "depth must be a number, '-3'"),
        ({"options": {"epochs": "2"}}, "options: epochs must be a positive integer, got '2'"),
    ],
)
def test_arms_that_no_model_could_have(arm: dict[str, Any], words: str) -> None:
    tuning = {"thresholds": [4.0]}
    with pytest.raises(ValueError, match=words) as caught:
        small_grid(arms=[{"name": "base"}, {"name": "x", **arm}], tuning=tuning)
    assert str(caught.value).startswith("grid 'small', arm 'x'")


def test_tuning_needs_its_table() -> None:
    with pytest.raises(ValueError, match=r"tune needs the grid's table \[tuning\]"):
        small_grid(arms=[{"name": "base"}, {"name": "x", "heads": "paper", "tune": True}])
