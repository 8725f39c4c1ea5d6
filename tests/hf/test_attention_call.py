"""Masks are resolved once, never stale, and never kept alive."""

import gc
import weakref

import pytest
import torch
from torch import Tensor

import jat_graph.hf.inputs as attention_call
from jat_graph.hf.inputs import resolve_once
from jat_graph.masks.tokens import TokenMask, resolve_mask
from tests.hf.models import LENGTH, run, tiny_inputs, tiny_jump_model

QUERY = torch.zeros(2, 4, LENGTH, 8)


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[Tensor | None]:
    """Every mask that was really resolved."""
    calls: list[Tensor | None] = []

    def spy(mask: Tensor | None, is_causal: bool, query: Tensor) -> TokenMask:
        calls.append(mask)
        return resolve_mask(mask, is_causal, query)

    monkeypatch.setattr(attention_call, "resolve_mask", spy)
    return calls


def padding() -> Tensor:
    valid = torch.arange(LENGTH) < torch.tensor([LENGTH, 7]).unsqueeze(-1)
    return valid[:, None, None, :].repeat(1, 1, LENGTH, 1)


def odd() -> Tensor:
    """A mask that is neither padding nor causal."""
    return torch.eye(LENGTH, dtype=torch.bool).expand(2, 1, -1, -1).clone()


@pytest.mark.parametrize(("name", "times"), [("bert", 0), ("gpt2", 1), ("modernbert", 1)])
def test_a_forward_reads_each_of_its_matrices_once(
    name: str, times: int, resolved: list[Tensor | None]
) -> None:
    """Padding alone is one row, which is not read at all."""
    model, inputs = tiny_jump_model(name), tiny_inputs(name, (LENGTH, 7))
    for forward in (1, 2):
        run(model, inputs)
        matrices = [mask for mask in resolved if mask is not None and mask.size(-2) > 1]
        assert len(matrices) == forward * times
    assert len(resolved) > len(matrices) or name == "gpt2"


@pytest.mark.parametrize("build", [padding, odd])
def test_the_result_is_that_of_resolving(build: object) -> None:
    mask: Tensor = build()  # type: ignore[operator]
    for _ in range(2):
        got, wanted = resolve_once(mask, False, QUERY), resolve_mask(mask, False, QUERY)
        assert got.causal == wanted.causal
        assert (got.pairs is None) == (wanted.pairs is None)
        for ours, theirs in ((got.valid, wanted.valid), (got.pairs, wanted.pairs)):
            assert ours is theirs or torch.equal(ours, theirs)  # type: ignore[arg-type]


def test_a_mask_that_was_written_to_is_resolved_anew() -> None:
    mask = padding()
    assert resolve_once(mask, False, QUERY).valid is not None
    mask[:] = True
    assert resolve_once(mask, False, QUERY).valid is None


def test_causality_and_shape_are_part_of_the_question(resolved: list[Tensor | None]) -> None:
    mask = padding()
    assert not resolve_once(mask, False, QUERY).causal
    assert resolve_once(mask, True, QUERY).causal
    resolve_once(mask, True, QUERY)
    assert len(resolved) == 2
    with pytest.raises(ValueError, match="attention_mask must be"):
        resolve_once(mask, True, QUERY[:, :, :-1])


@pytest.mark.parametrize("build", [padding, odd])
def test_a_mask_is_not_kept_alive(build: object) -> None:
    mask: Tensor = build()  # type: ignore[operator]
    resolve_once(mask, False, QUERY)
    alive = weakref.ref(mask)
    gc.collect()
    before = len(attention_call._entries)
    del mask
    gc.collect()
    assert alive() is None
    assert len(attention_call._entries) == before - 1


def test_what_may_go_stale_is_not_remembered(resolved: list[Tensor | None]) -> None:
    with torch.inference_mode():
        mask = padding()  # has no version
        for _ in range(2):
            assert resolve_once(mask, False, QUERY).valid is not None
        mask[:] = True
        assert resolve_once(mask, False, QUERY).valid is None
    broadcast = padding()[:, :, :1]
    resolve_once(broadcast, False, QUERY)
    resolve_once(broadcast, False, QUERY)
    resolve_once(None, True, QUERY)
    assert len(resolved) == 6
