"""Layouts: the same for the same seed, turned onto one another, by PCA where UMAP is missing."""

import logging
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.probes.atlas.layouts import directions, lay_out, turned, unit


def clouds(seed: int, layers: int = 2, points: int = 24) -> list[np.ndarray]:
    """Two groups that drift apart from layer to layer."""
    generator = np.random.default_rng(seed)
    groups = np.repeat([-1.0, 1.0], points // 2)[:, None]
    noise = generator.normal(size=(points, 8))
    return [directions(noise + 3 * (layer + 1) * groups) for layer in range(layers)]


def spread(points: np.ndarray) -> float:
    return float(np.sqrt((points**2).sum(1).mean()))


def test_directions_are_around_the_mean_and_of_one_length() -> None:
    states = np.random.default_rng(0).normal(5, 1, (7, 4))
    found = directions(states)
    assert np.allclose(np.linalg.norm(found, axis=1), 1)
    for own, state in zip(found, states, strict=True):
        away = state - states.mean(0)
        assert np.allclose(own, away / np.linalg.norm(away))


def test_states_that_do_not_differ_have_no_direction() -> None:
    same = np.full((6, 4), 0.1, np.float32)
    assert not directions(same).any() and not directions(np.zeros((3, 2))).any()


@given(st.integers(0, 99), st.floats(0, 6.3), st.booleans(), st.floats(0.1, 9))
def test_a_layout_that_was_turned_comes_back(
    seed: int, angle: float, mirrored: bool, size: float
) -> None:
    generator = np.random.default_rng(seed)
    onto = unit(generator.normal(size=(9, 2)))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = size * onto @ turn @ np.diag([1, -1 if mirrored else 1]) + generator.normal(size=2)
    assert np.allclose(turned(moved, onto), onto)


@given(st.integers(0, 99))
def test_no_other_turn_is_nearer(seed: int) -> None:
    generator = np.random.default_rng(seed)
    points, onto = unit(generator.normal(size=(9, 2))), unit(generator.normal(size=(9, 2)))
    best = ((turned(points, onto) - onto) ** 2).sum()
    for angle in np.linspace(0, 2 * np.pi, 50):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        for mirror in (1, -1):
            other = points @ turn @ np.diag([1, mirror])
            assert best <= ((other - onto) ** 2).sum() + 1e-9


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
    for points in (5, 6):
        check_degenerate(points)


def check_degenerate(points: int) -> None:
    """A layer without spread lies in one place, and the next one is laid out afresh."""
    states = np.random.default_rng(0).normal(size=(points, 3))
    line = np.linspace(-1, 1, points)[:, None] * np.ones((1, 3))
    rows = [np.zeros_like(states), directions(states), np.zeros_like(states), directions(line)]
    found, _ = lay_out(rows, 0)
    assert np.isfinite(found).all() and not found[0].any() and not found[2].any()
    assert np.isclose(spread(found[1]), 1) and np.isclose(spread(found[3]), 1)


def test_without_umap_it_is_pca_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    rows = clouds(2)
    with caplog.at_level(logging.WARNING):
        found, method = lay_out(rows, 0)
    assert method == "PCA" and found.shape == (2, 24, 2)
    assert len(caplog.messages) == 1
    assert "pip install 'jat_graph[atlas]'" in caplog.messages[0] and "\n" not in caplog.messages[0]
    values = np.linalg.svd(rows[0] - rows[0].mean(0), compute_uv=False)
    shares = np.linalg.svd(found[0], compute_uv=False)
    assert np.isclose(shares[0] / shares[1], values[0] / values[1])


@pytest.mark.parametrize("points", [5, 6])
def test_few_points_and_layers_without_spread_have_a_layout(
    points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    check_degenerate(points)
