"""The other sides compute what they are said to compute."""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from jat_graph.kernels import count_votes
from jat_graph.lab.speed.formulas import (
    AS_WRITTEN,
    FORMULATIONS,
    compile_formula,
    missing_compiler,
    sum_by_csr,
    sum_by_scatter,
    sum_by_torch_sparse,
)
from jat_graph.voting.rule import VoteRule

CPU = torch.device("cpu")


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


@pytest.mark.parametrize("multiply", [sum_by_csr, sum_by_scatter, sum_by_torch_sparse])
def test_explicit_products_are_products(multiply) -> None:
    if multiply is sum_by_torch_sparse:
        pytest.importorskip("torch_sparse")
    counts = counted(scores(1, 3, 17, 5))[None]
    assert 0 < int(counts.count_nonzero()) < counts.numel()
    x = scores(2, 1, 3, 17, 4)
    run = multiply(counts, x)
    assert_close(run(), counts @ x)
    assert_close(run(), counts @ x)  # and again: nothing is used up
