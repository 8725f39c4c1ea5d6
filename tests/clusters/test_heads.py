"""``jump_attention`` by clusters: each head by its own settings, and what is refused."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from jat_graph import JatConfig, clustered_attention, jump_attention, jump_operator

SETTINGS: dict[str, Any] = {"keys": 2, "size": 2, "segment": 4, "dense_below": 0}
LENGTH = 20


def heads() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, LENGTH, 8, dtype=torch.float64)
    return query, key, value


def mask() -> Tensor:
    return torch.arange(LENGTH) < torch.tensor([[LENGTH], [13]])


@pytest.mark.parametrize("padded", [False, True])
def test_it_is_clustered_attention(padded: bool) -> None:
    tensors, attention_mask = heads(), mask() if padded else None
    for x in tensors:
        x.requires_grad_()
    config = JatConfig.clustered(**SETTINGS)
    options: dict[str, Any] = {"attention_mask": attention_mask, "scale": 0.4}
    got = jump_attention(*tensors, config=config, **options)
    want = clustered_attention(*tensors, **SETTINGS, **options)
    assert torch.equal(got, want)
    grads = [torch.autograd.grad(out.square().sum(), tensors) for out in (got, want)]
    assert_close(*grads, rtol=0, atol=1e-12)
    without = jump_attention(*tensors, config=config.replace(propagate=False), **options)
    assert not torch.allclose(without, got, atol=1e-3)


def test_a_row_of_a_table_gives_each_head_its_own() -> None:
    tensors = heads()
    table = {"keys": ((4, 0, 4, 2),), "dense_below": ((0, 0, 0, math.inf),)}
    got = jump_attention(*tensors, config=JatConfig.clustered(**SETTINGS | table))
    for head, keys in enumerate((4, 0, 4)):
        want = clustered_attention(*tensors, **SETTINGS | {"keys": keys})
        assert_close(got[:, head], want[:, head], rtol=0, atol=1e-12)
    dense = torch.nn.functional.scaled_dot_product_attention(*tensors)
    assert torch.equal(got[:, 3], dense[:, 3])
    two = JatConfig.clustered(keys=((3, 1, 3, 2),) * 2)
    with pytest.raises(ValueError, match="keys table must have one row for one layer, got 2"):
        jump_attention(*tensors, config=two)
    with pytest.raises(ValueError, match=r"keys row 0 must have 4 entries.*got 2"):
        jump_attention(*tensors, config=JatConfig.clustered(keys=((3, 1),)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"strength": torch.zeros(3, 1, 4)}, "strength must not be set with graph='clusters'"),
        ({"excluded": ~mask()}, "excluded must not be set with graph='clusters', got a Tensor"),
        ({"graph": torch.ones(2, 5)}, "graph must not be set with graph='clusters'"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_what_clusters_cannot_use_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as seen:
        jump_attention(*heads(), config=JatConfig.clustered(**SETTINGS), **given)
    assert "\n" not in str(seen.value)


def test_there_is_no_operator_of_jumps() -> None:
    query, key, _ = heads()
    with pytest.raises(ValueError, match="graph must be 'pairs' or 'stones' here, got 'clusters'"):
        jump_operator(query, key, config=JatConfig.clustered())
