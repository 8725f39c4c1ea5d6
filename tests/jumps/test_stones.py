from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import jat_graph.jumps.operators.stones
from jat_graph import JatConfig, PairGraph, jump_attention, jump_operator, stone_graph
from jat_graph.nn import JumpSelfAttention
from tests.oracles import reference_jump_attention, standard_scores, stone_attention
from tests.support import assert_within_budget

INCIDENCES, SIDES = ("excess", "hard", "sigmoid"), ("both", "positive")

CLOSE = {"atol": 1e-9, "rtol": 1e-9}
# Two tokens have standard scores of ±1: at a threshold of 1 they are ties, which rounding decides.
THRESHOLDS = st.sampled_from((0.0, 0.5, 0.9, 1.5, 9.0))


@st.composite
def drawn_stones(draw, longest=80):
    """Draw heads, strengths, and how stones are made of them."""
    batch, heads, width = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 5))
    length, hops = draw(st.integers(1, longest)), draw(st.integers(1, 2))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    query, key = torch.randn(2, batch, heads, length, width, generator=generator).double()
    value = torch.randn(batch, heads, length, 3, generator=generator).double()
    strength = torch.randn(3, hops, heads, generator=generator).double()
    tensors = [tensor.requires_grad_() for tensor in (query, key, value, strength)]
    settings = {
        "threshold": draw(THRESHOLDS),
        "incidence": draw(st.sampled_from(INCIDENCES)),
        "sides": draw(st.sampled_from(SIDES)),
        "self_weight": draw(st.sampled_from((0.0, 0.1))),
    }
    marks = {}
    for name in ("valid", "excluded"):
        if draw(st.booleans()):
            marks[name] = torch.rand(batch, length, generator=generator) < 0.7
    return tensors, hops, settings, marks, draw(st.booleans())


def fast(tensors, hops, settings, marks, causal, **more):
    query, key, value, strength = tensors
    config = JatConfig.stones(**({"key_selection": "all", "hops": hops} | settings | more))
    return jump_attention(
        query,
        key,
        value,
        config=config,
        strength=strength,
        attention_mask=marks.get("valid"),
        excluded=marks.get("excluded"),
        is_causal=causal,
    )


def slow(tensors, settings, marks, causal, **more):
    excluded = marks.get("excluded")
    options = {"stones": None if excluded is None else ~excluded.unsqueeze(1)} | settings | more
    return stone_attention(
        *tensors,
        scale=tensors[0].size(-1) ** -0.5,
        temperature=0.5,
        valid=marks.get("valid"),
        causal=causal,
        **options,
    )


@pytest.mark.parametrize("backend", ["dense", "sparse"])
@given(drawn=drawn_stones(), block=st.sampled_from((1, 200, 2**20)))
def test_it_is_the_oracles_head(backend, drawn, block):
    tensors, hops, settings, marks, causal = drawn
    if backend == "sparse":
        causal = False
        settings["incidence"] = settings["incidence"].replace("sigmoid", "excess")
    theirs = slow(tensors, settings, marks, causal)
    shown = marks.get("valid", torch.ones(len(theirs), theirs.size(2)).bool())[:, None, :, None]
    cotangent = torch.randn_like(theirs) * shown
    with patch.object(jat_graph.jumps.operators.stones, "LARGEST", {"cpu": block}):
        ours = fast(tensors, hops, settings, marks, causal, backend=backend)
        assert_close(ours * shown, theirs * shown, **CLOSE)
        gradients = (torch.autograd.grad(output, tensors, cotangent) for output in (ours, theirs))
        assert_close(*gradients, **CLOSE)


@given(drawn=drawn_stones(30), selection=st.sampled_from(("significance", "strided", "sampled")))
def test_some_keys_are_stones(drawn, selection):
    tensors, hops, settings, marks, _ = drawn
    ours = fast(tensors, hops, settings, marks, False, key_selection=selection, num_keys=4)
    valid, excluded = marks.get("valid"), marks.get("excluded")
    config = JatConfig.stones(key_selection=selection, num_keys=4, incidence="sigmoid")
    scale = tensors[0].size(-1) ** -0.5
    graphs = stone_graph(*tensors[:2], config=config, attention_mask=valid, excluded=excluded)
    chosen = torch.zeros(tensors[0].shape[:3], dtype=torch.bool)
    for graph in graphs.to_data_list():
        chosen[graph.sequence, graph.head, graph.stone] = True
    everyone = torch.ones(ours.shape[0], ours.shape[2], dtype=torch.bool)
    valid = everyone if valid is None else valid
    may = valid if excluded is None else valid & ~excluded
    assert not (chosen & ~may[:, None]).any()
    if selection == "significance":
        # That of centred scores is their largest one: Eq. 8 with a mean of 0.
        scores = standard_scores(*tensors[:2], scale, marks.get("valid"))
        peak = scores.masked_fill(~valid[:, None, :, None], -torch.inf).amax(-2)
        least = peak.masked_fill(~chosen, torch.inf).amin(-1, keepdim=True)
        left_out = peak.masked_fill(chosen | ~may[:, None], -torch.inf)
        assert (left_out <= least + 1e-9).all()
    expected = slow(tensors, settings, marks, False, stones=chosen)
    visible = valid[:, None, :, None]
    assert_close(ours * visible, expected * visible, **CLOSE)


@given(drawn=drawn_stones(40))
def test_without_strength_it_is_plain_attention_to_the_bit(drawn):
    (query, key, _, strength), _, _, marks, causal = drawn
    # SDPA's last bit depends on where in memory its tensors begin: new ones begin alike.
    query, key, value = query.clone(), key.clone(), torch.randn_like(query)
    mask = marks.get("valid")
    if mask is not None:
        mask[:, 0] = True  # a row without a key is 0 with us
        mask = mask[:, None, None]
        query, key, value = (x * mask.mT for x in (query, key, value))
    if mask is not None and causal:
        pairs = mask & torch.ones(len(mask.mT[0, 0]), mask.size(-1), dtype=torch.bool).tril()
        plain = F.scaled_dot_product_attention(query, key, value, pairs)
    else:
        plain = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)
    for learning in (False, True):
        none = torch.zeros_like(strength).requires_grad_(learning)
        assert torch.equal(fast((query, key, value, none), *drawn[1:]), plain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_low_precision_stays_inside_the_budget(dtype, causal):
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 2, 70, 8, generator=generator, dtype=torch.float64)
    strength = torch.full((3, 1, 2), 0.5, dtype=torch.float64)
    low = [tensor.to(dtype) for tensor in (query, key, value, strength)]
    settings = {"threshold": 1.0, "self_weight": 0.1}
    ours = fast(low, 1, settings, {}, causal)
    exact = slow([tensor.double() for tensor in low], settings, {}, causal)
    assert_within_budget(ours, slow(low, settings, {}, causal), exact)


def test_pairs_with_strengths_interpolate_between_attention_and_the_papers_jump():
    query, key, value = torch.randn(3, 1, 2, 9, 4).double() * 2
    config = JatConfig(PairGraph(threshold=1.0), strength=(1.0, 1.0, 0.0))
    paper = jump_attention(query, key, value, config=JatConfig(PairGraph(threshold=1.0)))
    assert_close(jump_attention(query, key, value, config=config), paper)
    expected = reference_jump_attention(query, key, value, threshold=1.0)
    assert_close(paper, expected)
    # Half of the way, and the values come along the graph, too.
    config = JatConfig(PairGraph(threshold=1.0), strength=(0.5, 0.5, 0.25))
    walk = jump_operator(query, key, config=config)
    near = [x + 0.5 * (walk.matmul(x) - x) for x in (query, key)]
    expected = F.scaled_dot_product_attention(*near, value) + 0.25 * walk.matmul(value)
    assert_close(jump_attention(query, key, value, config=config), expected)


def test_standard_scores_give_the_pair_rule_one_threshold_for_all_sizes():
    query, key = torch.randn(2, 1, 2, 30, 8).double()
    config = JatConfig(PairGraph(threshold=4.0, standardize=True))
    dense = jump_operator(query, key, config=config).to_dense()
    for backend in ("dense", "sparse", "threshold"):
        scaled = JatConfig(PairGraph(threshold=4.0, standardize=True, backend=backend))
        other = jump_operator(7 * query + 1, 0.2 * key - 3, config=scaled).to_dense()
        assert_close(other, dense)
    assert dense.count_nonzero() > 60


def test_a_layer_begins_without_a_jump_and_learns_its_strengths():
    layer, plain = JumpSelfAttention(16, 2, JatConfig.stones()), JumpSelfAttention(16, 2, None)
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "strength.theta"})
    x = torch.randn(2, 11, 16)
    assert torch.equal(layer(x), plain(x))
    layer(x).square().sum().backward()
    assert (layer.strength.theta.grad != 0).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"strength must be \[3, 1, 2\] .* got None"),
        ({"strength": torch.zeros(3, 2, 2)}, r"strength must be \[3, 1, 2\] .* got \[3, 2, 2\]"),
        (
            {"strength": torch.zeros(3, 1, 2), "excluded": torch.zeros(1, 4, dtype=torch.bool)},
            r"excluded must be bool \[1, 5\], got torch.bool \[1, 4\]",
        ),
    ],
)
def test_wrong_strengths_and_silent_tokens_are_named(options, words):
    heads = torch.randn(3, 1, 2, 5, 4)
    with pytest.raises(ValueError, match=words):
        jump_attention(*heads, config=JatConfig.stones(), **options)
