"""What torch can do to tensors beside computing with them: heads go along, or say so in a line."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.testing import assert_close

import jat_graph
from jat_graph import JatConfig, PairGraph, clustered_attention, jump_attention
from jat_graph.nn import JumpSelfAttention
from tests.inputs import random_heads

CLUSTERS = {"keys": 2, "size": 2, "segment": 4, "window": 2, "dense_below": 0}
KINDS = {
    "pairs": JatConfig(PairGraph(threshold=0.5), heads="all"),
    "standard pairs": JatConfig(PairGraph(threshold=0.5, standardize=True), heads="all"),
    "soft pairs": JatConfig(PairGraph(soft_temperature=0.5), heads="all"),
    "ranked pairs": JatConfig(PairGraph(threshold=0.5, backend="threshold"), heads="all"),
    "sparse pairs": JatConfig(PairGraph(threshold=0.5, backend="sparse"), heads="all"),
    "stones": JatConfig.stones(strength=0.5, threshold=0.5, hops=2, self_weight=0.0),
    "clusters": JatConfig.clustered(**CLUSTERS),
    "window": JatConfig.stones(strength=0.5, pattern="window:3"),
}
PADDED = torch.arange(70) < torch.tensor([[70], [41]])
REFUSED = {"ranked pairs", "sparse pairs", "clusters"}  # by torch.func


def attend(kind, **options):
    return lambda x: jump_attention(x, x, x, config=KINDS[kind], **options)


CALLS = [
    *map(attend, KINDS),
    lambda x: clustered_attention(x, x, x, **CLUSTERS),
    lambda x: jat_graph.jump_operator(x, x, config=KINDS["stones"]),
    lambda x: jat_graph.attention_graph(x, x, config=KINDS["pairs"]),
    *(JumpSelfAttention(12, 2, KINDS[kind]) for kind in ("pairs", "stones", "clusters")),
]


def one_line(words):
    return pytest.raises(ValueError, match=rf"\A[^\n]*(?:{words})[^\n]*\Z")


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("call", CALLS)
def test_what_cannot_be_computed_with_or_looked_at_is_refused(call):
    x = torch.randn(1, 6, 12) if isinstance(call, torch.nn.Module) else torch.randn(1, 2, 6, 4)
    with one_line("must be floating point of 16 bits or more, got torch.float8_e4m3fn"):
        call(x.to(torch.float8_e4m3fn))
    for mapped in (call, torch.func.grad(lambda x: call(x).sum())):
        with one_line("must have values that can be read, got a tensor in torch.func.vmap"):
            torch.func.vmap(mapped)(torch.stack([x, x]))
    with one_line(
        "must have values that can be read, got a tensor in torch.jit.trace, .* torch.export"
    ):
        torch.jit.trace(call, (x,))
    with one_line("must have values that can be read, got a tensor on the device meta"):
        call(x.to("meta"))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attention_mask": PADDED}])
@pytest.mark.parametrize("kind", KINDS)
def test_torch_func_gives_the_gradient_of_autograd_or_says_why_not(kind, options):
    x, *_ = random_heads(2, 2, 70, 4)
    head = attend(kind, **options)
    if kind in REFUSED:
        with one_line("torch.func does not support .* torch.autograd|causal"):
            torch.func.grad(lambda x: head(x).sum())(x)
        return
    got = torch.func.grad(lambda x: head(x).square().sum())(x)
    (wanted,) = torch.autograd.grad(head(x.requires_grad_()).square().sum(), x)
    assert wanted.abs().amax() > 1e-3
    assert_close(got, wanted, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("kind", ["ranked pairs", "clusters"])
def test_derivatives_forward_that_would_be_left_out_are_refused(kind):
    x, step, *_ = random_heads(1, 2, 9, 4)
    with forward_ad.dual_level(), one_line("torch.func does not support"):
        attend(kind)(forward_ad.make_dual(x, step))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["pairs", "standard pairs", "stones"])
def test_scores_of_no_scale_are_all_alike(kind, is_causal):
    x, *_ = random_heads(2, 2, 9, 4, dtype=torch.float32)
    got = attend(kind, scale=0.0, is_causal=is_causal)(x.requires_grad_())
    assert bool(torch.autograd.grad(got.square().sum(), x)[0].isfinite().all())
    wanted = F.scaled_dot_product_attention(0 * x, x, x, is_causal=is_causal)
    own = x if kind == "stones" else 0 * x  # a token on no stone keeps twice the half of its value
    assert_close(got, wanted + own, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 6), (1, 1, 6, 6)])
def test_a_mask_of_zeros_and_ones_as_floats_is_warned_of(shape):
    x, mask = torch.randn(2, 2, 6, 4), (torch.arange(6) < 4).float().expand(shape)
    with pytest.warns(UserWarning, match=r"mask adds 0 and 1 to scores: .*\.bool"):
        attend("stones", attention_mask=mask)(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in (mask > 0, 0 * mask, mask / 2, mask.log()):
            attend("pairs", attention_mask=other)(x)
