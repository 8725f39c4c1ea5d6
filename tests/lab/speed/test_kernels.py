"""The counting rows: right results are timed, wrong ones are refused before."""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.kernels import count_votes
from jat_graph.lab.speed import inputs, kernels
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.kernels import (
    ADJACENCY,
    AS_WRITTEN,
    COUNT,
    FASTEST,
    FORMULATIONS,
    KERNELS,
    compile_formula,
    counting_series,
    missing_compiler,
)
from jat_graph.lab.speed.series import Series, Settings
from jat_graph.voting.rule import VoteRule

CPU = torch.device("cpu")
SERIES = counting_series()
LENGTH = 40


def _name(series: Series) -> str:
    return f"{series.what} against {series.against}"


def one_too_many(columns, limits):
    """Count, and count one pair once too often."""
    counts = count_votes(columns, limits)
    counts[0, -1, 1, 0] += 1
    return counts


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("series", SERIES, ids=_name)
def test_a_row_is_measured_after_its_figures_are_printed(
    series: Series, settings: Settings, said: pytest.LogCaptureFixture
) -> None:
    outcome = series.measure(LENGTH, settings)
    assert outcome.ratio is not None
    assert outcome.ratio.median > 0
    assert outcome.facts["joined"] >= 0.6
    assert outcome.facts["taking_part"] >= 0.5
    assert f"{series.what}, L={LENGTH}: results agree; " in said.text
    assert f"{100 * outcome.facts['joined']:.1f} % of the pairs are joined" in said.text
    if series.against == FASTEST:
        assert outcome.facts["formulation"] in FORMULATIONS
    assert ("count_seconds" in outcome.facts) == (series.what == ADJACENCY)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("series", SERIES, ids=_name)
def test_a_wrong_count_is_refused_and_nothing_is_timed(
    series: Series, settings: Settings, said: pytest.LogCaptureFixture, monkeypatch
) -> None:
    monkeypatch.setattr(kernels, "count_votes", one_too_many)
    with pytest.raises(CheckError, match=rf"^{series.what}, L={LENGTH}.*1 of \d+ numbers differ"):
        series.measure(LENGTH, settings)
    assert not said.messages


@pytest.mark.usefixtures("quick")
def test_heads_that_join_too_little_are_refused(
    settings: Settings, said: pytest.LogCaptureFixture, monkeypatch
) -> None:
    monkeypatch.setattr(inputs, "WANTED_JOINED", 0.3)  # and they are made so
    monkeypatch.setattr(inputs, "WANTED_TAKING_PART", 0.3)
    with pytest.raises(CheckError, match=f"^{COUNT}, L={LENGTH}: the inputs must join 60%"):
        SERIES[0].measure(LENGTH, settings)
    assert not said.messages


def test_without_a_compiler_the_row_says_so(settings: Settings, monkeypatch) -> None:
    monkeypatch.setattr(kernels, "missing_compiler", lambda device: "no compiler")
    outcome = SERIES[1].measure(LENGTH, settings)
    assert outcome.ratio is None
    assert outcome.note == "not measured: no compiler"


def test_every_claimed_comparison_is_there() -> None:
    found = {(one.what, one.against): one.lengths for one in KERNELS.series(Settings("cpu", 1))}
    words = " ".join(f"{what} {against}" for what, against in found)
    for word in ("SDPA", "torch.compile", "released", "CSR", "torch_sparse", "PyG scatter"):
        assert word in words
    assert found["count, all keys", "SDPA of the same heads"] == (384, 512)
    assert found["threshold product", "SDPA of the same heads"] == (2048, 8192, 32768)


def scores(seed: int, *shape: int) -> torch.Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def counted(x: torch.Tensor) -> torch.Tensor:
    """Return our counts at ρ = 1 of scores ``[H, L, U]``."""
    return count_votes(*VoteRule(torch.ones(1, 1)).settle(x[None]))[0]


@pytest.mark.parametrize("name", FORMULATIONS)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 10**6))
def test_every_formulation_counts_votes(name: str, length: int, keys: int, seed: int) -> None:
    x = scores(seed, 2, length, keys)
    found = FORMULATIONS[name](x, x.transpose(1, 2).contiguous(), 1.0)
    assert torch.equal(found.float(), counted(x))


# Inductor warns of what torch itself will change.
@pytest.mark.filterwarnings("ignore")
def test_the_compiled_expression_counts_votes() -> None:
    missing = missing_compiler(CPU)
    if missing:
        pytest.skip(missing)
    x = scores(0, 2, 12, 12)
    found = compile_formula(AS_WRITTEN)(x, x.transpose(1, 2).contiguous(), 1.0)
    assert torch.equal(found.float(), counted(x))


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    def fail() -> str:
        raise InvalidCxxCompiler("none")

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", fail)
    assert missing_compiler(CPU) == "torch.compile needs a C++ compiler, and there is none"
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "needs triton" in missing_compiler(torch.device("cuda"))
