"""Graphs that are not kept for backward are computed again, and nothing changes."""

from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from jat_graph import JatConfig, jump_attention
from jat_graph.attention import propagation
from jat_graph.testing import assert_within_budget
from tests.attention.test_stones import CLOSE, drawn_stones, fast


@given(drawn=drawn_stones(), table=st.booleans())
def test_a_graph_computed_again_is_the_same(drawn, table):
    tensors, hops, settings, marks, _ = drawn
    if table:
        settings["threshold"] = ((0.2, 1.1)[: tensors[0].size(1)],)
    again = []
    for most in (propagation.MOST_LINKS, 0):
        with mock.patch.object(propagation, "MOST_LINKS", most):
            ours = fast(tensors, hops, settings, marks, True)
            gradients = torch.autograd.grad(ours.square().sum(), tensors)
        again.append([ours, *gradients])
    assert_close(*again, **CLOSE)


def test_a_graph_computed_again_keeps_none_of_its_links(monkeypatch):
    query, key, value = (torch.randn(1, 2, 70, 4).requires_grad_() for _ in range(3))
    kept = []
    for most in (propagation.MOST_LINKS, 0):
        monkeypatch.setattr(propagation, "MOST_LINKS", most)
        sizes = []

        def pack(x, sizes=sizes):
            sizes.append(x.numel())
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            config = JatConfig.stones(key_selection="all", strength=0.5)
            jump_attention(query, key, value, config=config, is_causal=True)
        kept.append(max(sizes))
    assert kept[0] >= 2 * 70 * 140 > kept[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_graph_is_computed_again_under_autocast(dtype, monkeypatch):
    drawn = torch.randn(3, 1, 2, 70, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    config, results = JatConfig.stones(key_selection="all", strength=0.5), []
    for most, kind in ((0, dtype), (2**40, dtype), (2**40, torch.float64)):
        monkeypatch.setattr(propagation, "MOST_LINKS", most)
        tensors = [x.to(kind).requires_grad_() for x in drawn]
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == dtype):
            ours = jump_attention(*tensors, config=config, is_causal=True)
        results.append([ours, *torch.autograd.grad(ours.double().square().sum(), tensors)])
    for parts in zip(*results, strict=True):
        assert_within_budget(*parts)
