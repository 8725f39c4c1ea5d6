"""Inputs do real work, and the figures that say so are right."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.inputs import (
    NUM_HEADS,
    THRESHOLD,
    Work,
    draw_heads,
    measure_work,
    number_of_keys,
    open_case,
    strengthening,
)
from jat_graph.lab.speed.series import Settings

CPU = torch.device("cpu")


def brute_force(scores: Tensor, threshold: float) -> tuple[float, float]:
    """Return both figures by their definition, over all pairs i ≠ k."""
    votes = scores.unsqueeze(3) * scores.unsqueeze(2) > threshold  # [B, H, L, L, U]
    length = scores.size(2)
    votes = votes & ~torch.eye(length, dtype=torch.bool)[..., None]
    joined = votes.any(-1).double().sum((-1, -2)) / (length * (length - 1))
    part = votes.any(3).double().mean(2)  # [B, H, U]
    median = part.quantile(0.5, dim=-1)
    return joined.mean(0).min().item(), median.mean(0).min().item()


@given(
    st.integers(4, 24), st.integers(1, 6), st.integers(0, 10**6), st.sampled_from([0.5, 2.0, 6.0])
)
def test_the_figures_are_those_of_the_definition(
    length: int, keys: int, seed: int, threshold: float
) -> None:
    scores = 2 * torch.randn(2, 3, length, keys, generator=torch.Generator().manual_seed(seed))
    joined, taking_part = brute_force(scores, threshold)
    work = measure_work(scores, threshold)
    assert work.joined == pytest.approx(joined, abs=0.02)  # of 16384 sampled pairs
    assert work.taking_part == pytest.approx(taking_part, abs=1e-6)


@given(st.integers(16, 1200), st.integers(1, 4), st.sampled_from([torch.float32, torch.bfloat16]))
def test_inputs_of_every_length_do_real_work(length: int, heads: int, dtype: torch.dtype) -> None:
    found = draw_heads(length, heads, device=CPU, dtype=dtype)
    assert found.query.shape == found.key.shape == found.value.shape == (1, heads, length, 64)
    assert found.query.dtype == dtype
    work = measure_work(found.key_scores(number_of_keys(length)), THRESHOLD)
    work.require("inputs")
    # Nor is everything joined by every key, where sorting would have nothing to do.
    assert work.taking_part < 0.75


def test_the_same_length_gives_the_same_inputs() -> None:
    first, second = (draw_heads(40, 2, device=CPU) for _ in range(2))
    assert torch.equal(first.query, second.query)
    assert torch.equal(first.value, second.value)


@pytest.mark.parametrize("work", [Work(0.59, 0.9), Work(0.9, 0.49), Work(math.nan, 1.0)])
def test_too_little_work_is_refused(work: Work) -> None:
    with pytest.raises(CheckError, match=r"^count, L=8: the inputs must join 60% .* nothing was"):
        work.require("count, L=8")


def test_small_scores_are_too_little_work() -> None:
    scores = 0.1 * torch.randn(1, 2, 64, 20, generator=torch.Generator().manual_seed(0))
    assert measure_work(scores, THRESHOLD) == Work(0.0, 0.0)
    factor = strengthening(scores, THRESHOLD)
    assert factor.shape == (1, 2)
    measure_work(scores * factor[..., None, None], THRESHOLD).require("scaled")


@pytest.mark.parametrize(("length", "keys"), [(16, 14), (512, 32), (65536, 56), (3, 3)])
def test_number_of_keys(length: int, keys: int) -> None:
    assert number_of_keys(length) == keys


def test_a_case_has_heads_whose_figures_it_prints_once_timed(
    settings: Settings, said: pytest.LogCaptureFixture
) -> None:
    case = open_case("count", 40, settings)
    assert case.name == "count, L=40"
    assert case.few_scores().shape == (1, NUM_HEADS, 40, number_of_keys(40))
    assert case.attend().shape == (1, NUM_HEADS, 40, 64)
    assert not said.messages
    calls = []
    timing = case.time([lambda: calls.append(len(said.messages))], case.attend)
    assert set(calls) == {1}  # the figures came before the first call
    outcome = case.outcome(timing, {"keys": 3})
    assert outcome.facts == {**case.work.facts, "keys": 3}
