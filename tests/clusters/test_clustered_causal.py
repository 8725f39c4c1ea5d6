"""Attention by trees of keys as the function gives it: any mask, precision, dropout, compiled."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from jat_graph import clustered_attention
from tests.clusters.support import assert_same, run
from tests.inputs import random_padding_mask
from tests.jumps.kernels.support import threads
from tests.oracles import reference_tree_attention
from tests.support import assert_within_budget, random_tensors

RULE: dict[str, Any] = {"keys": 4, "groups": 1, "size": 2, "segment": 4, "window": 2}
SETTINGS = RULE | {"dense_below": 0}


def causal(*heads: Tensor, **options: Any) -> Tensor:
    return clustered_attention(*heads, is_causal=True, enable_gqa=True, **SETTINGS | options)


def grouped(seed: int, batch: int, length: int, width: int = 4) -> list[Tensor]:
    """Return four heads of queries and two of keys and values."""
    return random_tensors(seed, *((batch, h, length, width) for h in (4, 2, 2)))


@given(
    seed=st.integers(0, 999),
    length=st.integers(1, 120),
    rule=st.fixed_dictionaries(
        {
            "keys": st.sampled_from((0, 1, 5, 200)),
            "groups": st.integers(1, 3),
            "size": st.sampled_from((1, 2, 4)),
            "segment": st.sampled_from((4, 16)),
            "window": st.sampled_from((1, 8)),
            "dense_below": st.sampled_from((0, 20, 64)),
        }
    ),
    side=st.sampled_from((None, "left", "right", "scattered")),
    propagate=st.booleans(),
    scale=st.sampled_from((None, 0.3)),
)
def test_each_token_reads_what_it_reads_alone(seed, length, rule, side, propagate, scale):
    heads, valid = grouped(seed, 2, length), torch.ones(2, length, dtype=torch.bool)
    if side:
        valid = random_padding_mask(2, length, side=side, seed=seed)
    shown, options = valid[:, None, :, None], rule | {"scale": scale}
    ours = {"attention_mask": valid if side else None, "propagate": propagate}
    theirs = {"sequence": valid.long() - 1, "rest": propagate}
    got = run(lambda *x: causal(*x, **options, **ours) * shown, heads)
    assert_same(got, run(lambda *x: reference_tree_attention(*x, **options, **theirs), heads))


@pytest.mark.parametrize("triangle", [False, True])
@pytest.mark.parametrize("additive", [False, True])
def test_masks_of_documents_may_know_of_order_and_be_additive(triangle, additive):
    heads = grouped(2, 2, 90)
    document = torch.tensor([[0] * 55 + [1] * 35, [0] * 25 + [1] * 65])
    mask = (document[:, :, None] == document[:, None])[:, None]
    mask = mask.tril() if triangle else mask
    if additive:
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    ours = run(lambda *x: causal(*x, attention_mask=mask), heads)
    assert_same(
        ours, run(lambda *x: reference_tree_attention(*x, sequence=document, **RULE), heads)
    )


def test_a_sequence_is_the_same_by_itself_and_before_any_later_token():
    heads, valid = grouped(3, 3, 200), random_padding_mask(3, 200, side="scattered", seed=1)
    for options in ({}, {"attention_mask": valid}):
        whole = causal(*heads, **options)
        for row in range(3):
            own = {name: mask[row : row + 1] for name, mask in options.items()}
            assert torch.equal(causal(*(x[row : row + 1] for x in heads), **own)[0], whole[row])
        other = [x.clone() for x in heads]
        for x in other:
            x[:, :, 131:] = 3 * torch.randn_like(x[:, :, 131:])
        assert torch.equal(causal(*other, **options)[:, :, :131], whole[:, :, :131])


def test_tokens_before_the_first_cluster_are_those_of_sdpa():
    heads = [x.float() for x in random_tensors(4, *[(1, 2, 4300, 8)] * 3)]
    ours = clustered_attention(*heads, is_causal=True)
    want = F.scaled_dot_product_attention(*heads, is_causal=True)
    torch.testing.assert_close(ours[:, :, :4096], want[:, :, :4096], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(ours[:, :, 4096:], want[:, :, 4096:], atol=1e-3)
    for length, rule in ((4096, {}), (579, {"dense_below": 0})):  # 4, a window, a segment less one
        short = [x[:, :, :length] for x in heads]
        ours = clustered_attention(*short, is_causal=True, **rule)
        assert torch.equal(ours, F.scaled_dot_product_attention(*short, is_causal=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_and_autocast_stay_inside_the_budget(dtype):
    heads = [x.to(dtype) for x in grouped(0, 1, 150, 16)]
    plain, true = (
        run(lambda *x: reference_tree_attention(*x, **RULE), [x.to(wide) for x in heads])
        for wide in (torch.float32, torch.float64)
    )
    ours = run(causal, heads)
    for mine, low, exact in zip(ours, plain, true, strict=True):
        assert_within_budget(mine, low.to(dtype), exact, ulps=8.0)
    with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
        again = run(causal, [x.float() for x in heads])
    assert torch.equal(again[0], ours[0])
    assert {x.dtype for x in again[1:]} == {torch.float32}


def test_dropout_has_its_own_gradients_and_the_mean_of_none():
    heads = grouped(6, 1, 40)

    def dropped(*x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return causal(*x, dropout_p=0.4, dense_below=16)

    leaves = [x.clone().requires_grad_() for x in heads]
    assert torch.autograd.gradcheck(dropped, leaves, fast_mode=True)
    torch.manual_seed(0)
    many = torch.stack([causal(*heads, dropout_p=0.2) for _ in range(600)])
    assert len(many[:, 0, 0, -1, 0].unique()) > 300
    spread = many.std(0) / 600**0.5
    assert ((many.mean(0) - causal(*heads)).abs() < 6 * spread + 1e-12).all()
    assert not causal(*heads, dropout_p=1.0).any()


def test_compiled_code_takes_any_length():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(causal, fullgraph=True, dynamic=True, backend=counter)
    for length in (30, 57, 64, 101):
        heads = grouped(length, 2, length)
        assert_same(run(compiled, heads), run(causal, heads), 1e-12)
    assert counter.frame_count <= 2


def test_threads_and_modes_change_nothing():
    heads = grouped(7, 2, 300, 8)
    want = run(causal, heads)
    with threads(3):
        assert all(torch.equal(*pair) for pair in zip(run(causal, heads), want, strict=True))
        with torch.inference_mode():
            assert torch.equal(causal(*heads), want[0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clusters": 8}, "unknown field 'clusters' of ClusterGraph, wanted one of keys"),
        ({"size": 3, "segment": 8}, "segment must be size, 3, times a power of two, as 96, got 8"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"keys": -1}, "keys must be at least 0, got -1"),
        ({"is_causal": 1}, "is_causal must be True or False, got 1"),
        ({"global_attention_mask": torch.ones(1, 40).bool()}, "None in causal order, got a mask"),
        ({"attention_mask": torch.ones(1, 1, 40, 40).tril().triu(-9).bool()}, "got another rule"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_bad_settings_are_one_line(wrong, message):
    heads = random_tensors(8, *[(1, 1, 40, 4)] * 3)
    with pytest.raises(ValueError, match=message) as seen:
        clustered_attention(*heads, **{"is_causal": True} | wrong)
    assert "\n" not in str(seen.value)
