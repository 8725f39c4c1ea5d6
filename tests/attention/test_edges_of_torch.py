"""What torch can do to tensors beside computing with them: heads go along, or say so in a line."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

import jat_graph
from jat_graph import JatConfig, PairGraph, clustered_attention, jump_attention, jump_operator
from jat_graph.nn import JumpSelfAttention, TripletAttention
from tests.inputs import random_heads

CLUSTERS = {"clusters": 2, "keys": 1, "block": 1, "dense_below": 0}
KINDS = {
    "pairs": JatConfig(PairGraph(threshold=0.5), heads="all"),
    "rated pairs": JatConfig(PairGraph(vote_rate=0.2), heads="all"),
    "standard pairs": JatConfig(PairGraph(threshold=0.5, standardize=True), heads="all"),
    "soft pairs": JatConfig(PairGraph(soft_temperature=0.5), heads="all"),
    "strong pairs": JatConfig(PairGraph(threshold=0.5), heads="all", strength=0.5),
    "ranked pairs": JatConfig(PairGraph(threshold=0.5, backend="threshold"), heads="all"),
    "sparse pairs": JatConfig(PairGraph(threshold=0.5, backend="sparse"), heads="all"),
    "stones": JatConfig.stones(strength=0.5, threshold=0.5, hops=2),
    "sigmoid stones": JatConfig.stones(strength=0.5, incidence="sigmoid"),
    "lone stones": JatConfig.stones(strength=0.5, self_weight=0.0),
    "sparse stones": JatConfig.stones(strength=0.5, backend="sparse"),
    "clusters": JatConfig.clustered(**CLUSTERS),
    "short clusters": JatConfig.clustered(),
    "window": JatConfig(PairGraph(threshold=0.5), heads="all", pattern="window:3"),
    "window of stones": JatConfig.stones(strength=0.5, pattern="window:3"),
}
REFUSED = {"ranked pairs", "sparse pairs", "sparse stones", "clusters"}  # by torch.func
LOOKING_AHEAD = {"rated pairs", "sparse stones", "clusters"}


def one_line(words):
    return pytest.raises(ValueError, match=rf"\A[^\n]*{words}[^\n]*\Z")


LAYERS = ("pairs", "stones", "clusters", "window")


@pytest.fixture(params=[*KINDS, *(f"a layer of {kind}" for kind in LAYERS), "triplets"])
def heads(request):
    """Return heads of each kind, in a function or in a layer, and what they take."""
    kind = request.param.removeprefix("a layer of ")
    if kind == "triplets":
        return TripletAttention(12, 2), torch.randn(1, 6, 12)
    if kind != request.param:
        return JumpSelfAttention(8, 2, KINDS[kind]), torch.randn(1, 6, 8)
    return lambda x: jump_attention(x, x, x, config=KINDS[kind]), torch.randn(1, 2, 6, 4)


def functions():
    graphs = (
        ("pairs", "attention_graph"),
        ("stones", "stone_graph"),
        ("clusters", "cluster_graph"),
    )
    yield "clustered_attention", lambda x: clustered_attention(x, x, x, **CLUSTERS)
    yield "jump_operator", lambda x: jump_operator(x, x, config=KINDS["stones"])
    for kind, name in graphs:
        yield name, lambda x, k=kind, n=name: getattr(jat_graph, n)(x, x, config=KINDS[k])


FUNCTIONS = dict(functions())


def test_what_cannot_be_computed_with_is_refused(heads):
    call, x = heads
    with one_line("must be floating point of 16 bits or more, got torch.float8_e4m3fn"):
        call(x.to(torch.float8_e4m3fn))
    with one_line("must have values to look at, got a tensor in torch.func.vmap"):
        torch.func.vmap(call)(torch.stack([x, x]))
    with one_line("must have values to look at, got a tensor in torch.func.vmap"):
        torch.func.vmap(torch.func.grad(lambda x: call(x).sum()))(torch.stack([x, x]))
    with one_line("must have values to look at, got a tensor on the device meta"):
        (call.to("meta") if isinstance(call, torch.nn.Module) else call)(x.to("meta"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_functions_refuse_them(name):
    for dtype, device in ((torch.float8_e4m3fn, "cpu"), (torch.float32, "meta")):
        with one_line("query must"):
            FUNCTIONS[name](torch.ones(1, 2, 6, 4, device=device).to(dtype))
    with one_line("query must"):
        torch.func.vmap(FUNCTIONS[name])(torch.ones(3, 1, 2, 6, 4))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_traces_that_would_keep_the_choices_of_one_input_are_refused(heads):
    with one_line("must have values to look at, got a tensor in torch.jit.trace, .* torch.export"):
        torch.jit.trace(heads[0], (heads[1],))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attention_mask": "padding"}])
@pytest.mark.parametrize("kind", KINDS)
def test_torch_func_gives_the_gradient_of_autograd_or_says_why_not(kind, options):
    x, *_ = random_heads(2, 2, 70, 4)
    if "attention_mask" in options:
        options = {"attention_mask": torch.arange(70) < torch.tensor([[70], [41]])}
    if options.get("is_causal") and kind in LOOKING_AHEAD:
        pytest.skip("looks ahead")

    def loss(x):
        return jump_attention(x, x, x, config=KINDS[kind], **options).square().sum()

    if kind in REFUSED:
        with one_line("torch.func cannot go through .* torch.autograd"):
            torch.func.grad(loss)(x)
        return
    leaf = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(leaf), leaf)
    assert wanted.abs().amax() > 1e-3
    assert_close(torch.func.grad(loss)(x), wanted, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("kind", LAYERS)
def test_torch_func_gives_the_gradients_of_a_layer(kind):
    layer, x = JumpSelfAttention(8, 2, KINDS[kind]), torch.randn(2, 6, 8)
    parameters = dict(layer.named_parameters())

    def loss(parameters):
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    if kind in REFUSED:
        with one_line("torch.func cannot go through clusters"):
            torch.func.grad(loss)(parameters)
        return
    got = torch.func.grad(loss)(parameters)
    wanted = torch.autograd.grad(loss(parameters), tuple(parameters.values()))
    assert_close(tuple(got.values()), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["pairs", "stones", "ranked pairs", "clusters"])
def test_derivatives_forward_are_right_or_refused(kind):
    x, step, *_ = random_heads(1, 2, 9, 4)
    config = KINDS[kind]

    def head(x):
        with sdpa_kernel(SDPBackend.MATH):
            return jump_attention(x, x, x, config=config)

    def dual(x, step):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(head(forward_ad.make_dual(x, step))).tangent

    for derive in (dual, lambda *at: torch.func.jvp(head, at[:1], at[1:])[1]):
        if kind in REFUSED:
            with one_line("torch.func cannot go through"):
                derive(x, step)
        else:
            wanted = (head(x + 1e-6 * step) - head(x - 1e-6 * step)) / 2e-6
            assert_close(derive(x, step), wanted, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_no_scale_are_all_alike(kind, is_causal):
    if is_causal and kind in LOOKING_AHEAD:
        pytest.skip("looks ahead")
    x, *_ = random_heads(2, 2, 9, 4, dtype=torch.float32)
    x.requires_grad_()
    for zero in (0.0, -0.0):
        config = KINDS[kind].replace(pattern=None) if "window" in kind else KINDS[kind]
        got = jump_attention(x, x, x, config=config, scale=zero, is_causal=is_causal)
        (grad,) = torch.autograd.grad(got.square().sum(), x)
        assert bool(grad.isfinite().all())
        wanted = F.scaled_dot_product_attention(0 * x, x, x, is_causal=is_causal)
        if config.strength is not None:  # where no token has a neighbour or a stone
            wanted = wanted + config.hops * 0.5 * x
        if "sigmoid" in kind:  # all tokens stand on all stones
            assert bool(got.isfinite().all())
        else:
            assert_close(got, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 6), (2, 1, 1, 6), (1, 1, 6, 6)])
def test_a_mask_of_zeros_and_ones_as_floats_is_warned_of(shape):
    x = torch.randn(2, 2, 6, 4)
    mask = (torch.arange(math.prod(shape)).view(shape) % 6 < 4).float()
    for config in (KINDS["pairs"], KINDS["stones"], JatConfig(hop_weights=(1,))):
        with pytest.warns(
            UserWarning, match=r"nothing but 0 and 1 as floats.*attention_mask\.bool"
        ):
            jump_attention(x, x, x, config=config, attention_mask=mask)
    with pytest.warns(UserWarning, match="0 and 1"), pytest.raises(ValueError, match="got biases"):
        clustered_attention(x, x, x, attention_mask=mask, **CLUSTERS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in (mask > 0, 0 * mask, mask / 2, mask.masked_fill(mask == 0, -math.inf) - 1):
            jump_attention(x, x, x, config=KINDS["pairs"], attention_mask=other)
    with pytest.raises(ValueError, match="mask must be bool"):
        JumpSelfAttention(8, 2, KINDS["pairs"])(torch.randn(2, 6, 8), mask=mask.view(-1, 6)[:2])
