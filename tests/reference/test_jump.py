import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from jat_graph.reference import (
    masked_softmax,
    reference_graph,
    reference_jump_attention,
    reference_num_samples,
)
from jat_graph.testing import random_heads, random_padding_mask

VARIANTS = [
    {},
    {"hop_weights": (0.5, 0.5)},
    {"hop_weights": (0.2, 0.0, -0.7, 1.1)},
    {"same_sign_only": True, "normalize_keys": True, "inclusive": True, "threshold": 3.0},
    {"key_selection": "significance", "num_keys": 5, "threshold": 1.0},
    {"key_selection": "strided", "num_keys": 5, "threshold": 1.0},
    {"key_selection": "significance", "num_keys": 6, "nodes": "selected", "threshold": 1.0},
    {"soft_temperature": 2.0},
]
# The other selections of keys look at later tokens.
CAUSAL_VARIANTS = [options for options in VARIANTS if "key_selection" not in options]


def assert_close(got: torch.Tensor, want: torch.Tensor) -> None:
    """Compare within the error that float64 is allowed."""
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


def assert_informative(query: torch.Tensor, key: torch.Tensor, options: dict[str, object]) -> None:
    """Between 5 and 95 % of the matrix is edges."""
    graph = {name: value for name, value in options.items() if name != "hop_weights"}
    adjacency = reference_graph(query, key, **graph).adjacency
    if "soft_temperature" not in options:
        assert 0.05 <= (adjacency > 0).double().mean() <= 0.95


@pytest.mark.parametrize("mask", ["none", "causal", "padding", "bias"])
def test_hop_zero_is_scaled_dot_product_attention(mask):
    query, key, value, _ = random_heads(2, 3, 10, 4)
    attention_mask, is_causal = None, mask == "causal"
    if mask == "padding":
        attention_mask = random_padding_mask(2, 10, seed=2)[:, None, None, :]
    if mask == "bias":
        attention_mask = torch.randn(2, 1, 10, 10, dtype=torch.float64)
    got = reference_jump_attention(
        query,
        key,
        value,
        hop_weights=(1.0,),
        attention_mask=attention_mask,
        is_causal=is_causal,
    )
    want = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, is_causal=is_causal
    )
    assert_close(got, want)


def test_an_infinite_threshold_with_one_hop_is_attention():
    query, key, value, _ = random_heads()
    got = reference_jump_attention(query, key, value, threshold=math.inf)
    assert_close(got, F.scaled_dot_product_attention(query, key, value))


def test_one_hop_changes_the_output():
    query, key, value, density = random_heads()
    assert 0.1 <= density <= 0.9
    got = reference_jump_attention(query, key, value)
    assert not torch.allclose(got, F.scaled_dot_product_attention(query, key, value), atol=1e-3)


def test_scale_is_used_for_votes_and_for_the_softmax():
    query, key, value, _ = random_heads()
    got = reference_jump_attention(query, key, value, scale=0.2)
    # Scores are the product of q, k and scale: move the scale into q.
    factor = 0.2 * math.sqrt(query.shape[-1])
    assert_close(got, reference_jump_attention(query * factor, key, value))


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("side", ["left", "right", "scattered"])
def test_padding_never_changes_a_valid_tokens_output(options, side):
    valid = random_padding_mask(3, 12, side=side, min_valid=6, seed=4)
    query, key, value, _ = random_heads(3, 2, 12, 4, attention_mask=valid)
    assert not valid.all()
    assert_informative(query, key, options | {"attention_mask": valid})
    whole = reference_jump_attention(query, key, value, attention_mask=valid, **options)
    assert whole.isfinite().all()
    for b in range(3):
        own = valid[b].nonzero().squeeze(-1)
        q, k, v = (t[b : b + 1, :, own] for t in (query, key, value))
        assert_close(whole[b : b + 1, :, own], reference_jump_attention(q, k, v, **options))


@pytest.mark.parametrize(
    "options",
    [*CAUSAL_VARIANTS, {"key_selection": "strided", "key_step": 3, "threshold": 1.0}],
    ids=str,
)
def test_causal_outputs_do_not_depend_on_later_tokens(options):
    query, key, value, density = random_heads(2, 2, 12, 4, is_causal=True)
    assert 0.1 <= density <= 0.9
    assert_informative(query, key, options | {"is_causal": True})
    whole = reference_jump_attention(query, key, value, is_causal=True, **options)
    cut = (t[:, :, :7] for t in (query, key, value))
    assert_close(whole[:, :, :7], reference_jump_attention(*cut, is_causal=True, **options))
    query, key, value = (t.clone() for t in (query, key, value))
    for tensor in (query, key, value):
        tensor[:, :, 7:] *= -3
    changed = reference_jump_attention(query, key, value, is_causal=True, **options)
    assert_close(whole[:, :, :7], changed[:, :, :7])
    assert not torch.allclose(whole[:, :, 7:], changed[:, :, 7:])


def test_packed_documents_give_what_each_gives_alone():
    query, key, value, _ = random_heads(1, 2, 12, 4)
    document = torch.tensor([0] * 5 + [1] * 7)
    mask = (document[:, None] == document)[None, None]
    whole = reference_jump_attention(query, key, value, attention_mask=mask)
    for part in (slice(0, 5), slice(5, 12)):
        q, k, v = (t[:, :, part] for t in (query, key, value))
        assert_close(whole[:, :, part], reference_jump_attention(q, k, v))


def test_biases_do_not_vote():
    query, key, _, _ = random_heads()
    bias = 10 * torch.randn(2, 1, 16, 16, dtype=torch.float64)
    plain = reference_graph(query, key).adjacency
    assert torch.equal(reference_graph(query, key, attention_mask=bias).adjacency, plain)


def test_a_batch_gives_what_its_items_give():
    heads = random_heads(3, 2, 10, 4)
    whole = reference_jump_attention(*heads[:3])
    items = [reference_jump_attention(*(t[b : b + 1] for t in heads[:3])) for b in range(3)]
    assert_close(whole, torch.cat(items))


def test_the_order_of_the_tokens_does_not_matter():
    query, key, value, _ = random_heads()
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))
    got = reference_jump_attention(*(t[:, :, order] for t in (query, key, value)))
    assert_close(got, reference_jump_attention(query, key, value)[:, :, order])


def test_one_token_and_hidden_rows_give_finite_output():
    query, key, value, _ = random_heads(1, 1, 1, 4)
    assert_close(reference_jump_attention(query, key, value), value)
    query, key, value, _ = random_heads(1, 1, 6, 4)
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[..., 2, :] = False
    got = reference_jump_attention(query, key, value, attention_mask=mask)
    assert got.isfinite().all() and not got[..., 2, :].any()


def test_masked_softmax_has_no_nan_gradient():
    logits = torch.randn(1, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    visible = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1]]).bool()[None, None]
    weights = masked_softmax(logits, visible)
    assert_close(weights.sum(-1).detach(), torch.tensor([[[1.0, 0.0, 1.0]]], dtype=torch.float64))
    assert torch.autograd.gradcheck(masked_softmax, (logits, visible))


@pytest.mark.parametrize(
    ("options", "is_causal"),
    [(options, False) for options in VARIANTS] + [(options, True) for options in CAUSAL_VARIANTS],
    ids=str,
)
def test_gradcheck(options, is_causal):
    query, key, value, _ = random_heads(1, 2, 7, 3, is_causal=is_causal)
    leaves = tuple(t.clone().requires_grad_() for t in (query, key, value))

    def attention(*tensors: torch.Tensor) -> torch.Tensor:
        return reference_jump_attention(*tensors, is_causal=is_causal, **options)

    assert torch.autograd.gradcheck(attention, leaves)


def test_no_gradient_flows_through_hard_votes_but_through_soft_ones():
    query, key, _, _ = random_heads()
    query.requires_grad_()
    assert not reference_graph(query, key).adjacency.requires_grad
    soft = reference_graph(query, key, soft_temperature=1.0).adjacency
    (gradient,) = torch.autograd.grad(soft.sum(), query)
    assert gradient.any()


@settings(max_examples=15, deadline=None)
@given(n=st.integers(4, 14), seed=st.integers(0, 99), rate=st.floats(0.05, 0.3))
def test_vote_rate_takes_its_threshold_from_the_triples(n, seed, rate):
    query, key, _, _ = random_heads(1, 2, n, 4, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    i = torch.randint(n, (500,), generator=generator)
    k = (i + torch.randint(1, n, (500,), generator=generator)) % n
    j = torch.randint(n, (500,), generator=generator)
    triples = {n: torch.stack([i, k, j], -1)}
    graph = reference_graph(query, key, vote_rate=rate, triples=triples)
    fixed = reference_graph(query, key, threshold=graph.threshold)
    assert torch.equal(graph.adjacency, fixed.adjacency)
    # The graph's mean weight is the rate over all triples, of which these are a sample.
    mean = graph.adjacency.sum((-1, -2)) / (n * (n - 1))
    assert (mean <= rate + 0.2).all()


def test_vote_rate_without_triples_is_refused():
    query, key, _, _ = random_heads()
    with pytest.raises(ValueError, match="triples"):
        reference_graph(query, key, vote_rate=0.1)


@pytest.mark.parametrize("selection", ["sampled", "sampled_queries"])
def test_sampled_keys_reach_the_graph(selection):
    query, key, _, _ = random_heads()
    size = reference_num_samples(16, selection, key_factor=2.0)
    assert size == 6
    graph = reference_graph(
        query,
        key,
        threshold=1.0,
        key_selection=selection,
        key_factor=2.0,
        sample_ranks={16: torch.arange(size)},
    )
    assert (graph.voters.sum(-1) == size).all()
    assert graph.adjacency.any()


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_float32_stays_near_float64(options):
    heads = random_heads(1, 2, 12, 4)
    exact = reference_jump_attention(*heads[:3], **options)
    single = reference_jump_attention(*(t.float() for t in heads[:3]), **options)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-4)
