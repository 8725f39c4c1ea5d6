"""Attention by clusters in causal order: each token by itself is the oracle, and nothing leaks."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from jat_graph import clustered_attention
from jat_graph.testing import assert_within_budget
from tests.inputs import random_padding_mask
from tests.oracles import reference_causal_clusters
from tests.support import random_tensors

SETTINGS: dict[str, Any] = {"keys": 4, "block": 8, "dense_below": 0}


def causal(*heads: Tensor, **options: Any) -> Tensor:
    return clustered_attention(*heads, is_causal=True, **SETTINGS | options)


def run(function: Any, heads: list[Tensor], **options: Any) -> list[Tensor]:
    """Return a function's output for heads, and its gradients."""
    leaves = [x.detach().clone().requires_grad_() for x in heads]
    output = function(*leaves, **options)
    cotangent = random_tensors(9, tuple(output.shape))[0].to(output.dtype)
    return [output.detach(), *torch.autograd.grad(output, leaves, cotangent)]


def assert_same(ours: list[Tensor], theirs: list[Tensor], within: float = 1e-10) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=within, atol=within)


@given(
    seed=st.integers(0, 999),
    length=st.integers(1, 90),
    block=st.sampled_from((1, 2, 5, 16)),
    keys=st.sampled_from((0, 1, 4, 100)),
    dense_below=st.sampled_from((0, 20, 64)),
)
def test_each_token_reads_what_it_reads_alone(seed, length, block, keys, dense_below):
    heads = random_tensors(seed, *((2, h, length, 4) for h in (4, 2, 2)))
    settings = {"block": block, "keys": keys, "dense_below": dense_below}
    ours = run(causal, heads, enable_gqa=True, **settings)
    assert_same(ours, run(reference_causal_clusters, heads, **settings))


@pytest.mark.parametrize("side", ["left", "right", "scattered"])
def test_padding_is_no_token(side):
    heads = random_tensors(1, *[(3, 2, 60, 4)] * 3)
    valid = random_padding_mask(3, 60, side=side, seed=2)
    kept = valid[:, None, :, None]
    ours = run(lambda *x: causal(*x, attention_mask=valid) * kept, heads)
    settings = {"keys": 4, "block": 8, "sequence": valid.long() - 1}
    assert_same(ours, run(reference_causal_clusters, heads, **settings))


@pytest.mark.parametrize("triangle", [False, True])
def test_packed_documents_are_sequences_of_their_own(triangle):
    heads = random_tensors(2, *[(2, 2, 70, 4)] * 3)
    document = torch.tensor([[0] * 40 + [1] * 30, [0] * 25 + [1] * 45])
    mask = (document[:, :, None] == document[:, None])[:, None]
    ours = run(causal, heads, attention_mask=mask.tril() if triangle else mask)
    assert_same(ours, run(reference_causal_clusters, heads, keys=4, block=8, sequence=document))


def test_no_later_token_changes_a_bit():
    heads = random_tensors(3, *[(1, 2, 200, 8)] * 3)
    other = [x.clone() for x in heads]
    for x in other:
        x[:, :, 131:] = 3 * torch.randn_like(x[:, :, 131:])
    assert torch.equal(causal(*other)[:, :, :131], causal(*heads)[:, :, :131])
    cut = causal(*(x[:, :, :131] for x in other))
    torch.testing.assert_close(cut, causal(*heads)[:, :, :131], rtol=1e-12, atol=1e-12)


def test_tokens_before_the_first_cluster_are_those_of_sdpa():
    heads = [x.float() for x in random_tensors(4, *[(1, 2, 2100, 8)] * 3)]
    ours = clustered_attention(*heads, is_causal=True)
    want = F.scaled_dot_product_attention(*heads, is_causal=True)
    assert torch.equal(ours[:, :, :2048], want[:, :, :2048])
    assert not torch.allclose(ours[:, :, 2048:], want[:, :, 2048:])
    short = [x[:, :, :2048] for x in heads]
    assert torch.equal(clustered_attention(*short, is_causal=True), want[:, :, :2048])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_stays_inside_the_budget(dtype):
    heads = [x.to(dtype) for x in random_tensors(0, *[(1, 2, 150, 16)] * 3)]
    ours = run(causal, heads)
    plain, true = (
        run(reference_causal_clusters, parts, keys=4, block=8)
        for parts in ([x.float() for x in heads], [x.double() for x in heads])
    )
    for mine, low, exact in zip(ours, plain, true, strict=True):
        assert_within_budget(mine, low.to(mine.dtype), exact, ulps=8.0)


def test_scores_far_apart_stay_finite():
    query, key, value = random_tensors(5, *[(1, 1, 300, 8)] * 3)
    rising = key + torch.linspace(0, 40, 300).view(1, 1, -1, 1) * query.mean()
    for k in (20 * key, rising, torch.full_like(key, 0.5)):
        ours = run(causal, [query, k, value])
        assert_same(ours, run(reference_causal_clusters, [query, k, value], keys=4, block=8), 1e-8)


def test_dropout_has_its_own_gradients_and_the_mean_of_none():
    heads = random_tensors(6, *[(1, 1, 40, 4)] * 3)

    def dropped(*x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return causal(*x, dropout_p=0.4, dense_below=16)

    leaves = [x.clone().requires_grad_() for x in heads]
    assert torch.autograd.gradcheck(dropped, leaves)
    torch.manual_seed(0)
    many = torch.stack([causal(*heads, dropout_p=0.2) for _ in range(4000)])
    spread = many.std(0) / 4000**0.5
    assert ((many.mean(0) - causal(*heads)).abs() < 6 * spread + 1e-12).all()


def test_compiled_code_takes_any_length():
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(causal, fullgraph=True, dynamic=True, backend=counter)
    for length in (30, 57, 64, 101):
        heads = random_tensors(length, *[(2, 2, length, 4)] * 3)
        assert_same(run(compiled, heads), run(causal, heads), 1e-12)
    assert counter.frame_count <= 2


def test_threads_change_nothing():
    heads = random_tensors(7, *[(2, 3, 200, 8)] * 3)
    before, want = torch.get_num_threads(), run(causal, heads)
    try:
        torch.set_num_threads(3)
        assert_same(run(causal, heads), want, 1e-12)
        with torch.inference_mode():
            assert_same([causal(*heads)], want[:1], 1e-12)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clusters": 8}, "clusters must be None for causal heads, got 8"),
        ({"block": 0}, "block must be at least 1 for causal heads, got 0"),
        ({"is_causal": 1}, "is_causal"),
    ],
)
def test_bad_settings_are_one_line(wrong, message):
    heads = random_tensors(8, *[(1, 1, 40, 4)] * 3)
    with pytest.raises(ValueError, match=message):
        clustered_attention(*heads, **{"is_causal": True} | wrong)
