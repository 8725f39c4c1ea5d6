"""Each token descends the tree of its keys: what it reads is the oracle's, and nothing leaks."""

import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jat_graph.clusters import naive
from jat_graph.clusters.attend import KERNELS, choose, kernel_for, read_next
from jat_graph.clusters.choice import Nodes, Rule, empty_choice, wide
from jat_graph.clusters.operator import read_tree
from tests.clusters.support import (
    RULE,
    SCALE,
    Deep,
    assert_same,
    cases,
    oracle_heads,
    random_heads,
    run,
    tree_heads,
)
from tests.jumps.kernels.support import threads
from tests.support import assert_within_budget, random_tensors


@pytest.fixture(params=["naive", "cpu"], autouse=True, scope="module")
def kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each kernel there is computes on the CPU."""
    kernel_for(torch.device("cpu"))
    if request.param not in KERNELS:
        pytest.skip("numba is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KERNELS, "cpu", KERNELS[request.param])
        yield


@pytest.mark.slow
@given(case=cases())
def test_each_token_reads_what_it_reads_alone(case):
    assert_same(run(tree_heads, *case), run(oracle_heads, *case))


@pytest.mark.parametrize("rest", [True, False])
def test_weights_are_positive_and_sum_to_one(rest):
    rule = RULE._replace(rest=rest)
    query, key, _ = random_heads(150)
    weights = tree_heads(query, key, torch.eye(150, dtype=key.dtype).expand(2, -1, -1), rule)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    read = weights > 0
    assert torch.equal(weights.where(read, 0.0), weights)
    if rest:
        assert torch.equal(read, torch.ones(150, 150).tril().bool().expand_as(read))
    else:
        near = 150 - 2 * int(choose(query, key, rule).seen[-1])
        assert (read[:, -1].sum(-1) > near).all() and not read[:, -1].all(-1).any()


@pytest.mark.slow
@given(ends=st.lists(st.integers(1, 180), min_size=1), seed=st.integers(0, 99))
def test_any_chunks_and_crops_read_what_the_whole_reads(ends, seed):
    query, key, value = random_heads(180, seed=seed)
    want, kept, start = tree_heads(query, key, value), None, 0
    for end in ends:
        start = min(start, end - 1)
        kept, own = kept and kept.crop(start), (query[:, start:end], key[:, :end], value[:, :end])
        output, kept = read_next(*own, RULE, SCALE, kept)
        assert_same([output], [want[:, start:end]], 1e-12)
        start = end


def test_one_far_key_that_one_token_needs_is_found():
    topics, key, pick = random_tensors(2, (40, 40, 64), (40, 1000, 64), (40, 1000))
    needed, place, head = key[:, 0], 4 + 22 * torch.arange(40), torch.arange(40)
    key = topics[head[:, None], (10 * pick.abs()).long() % 40] + key / 3
    key[head, place] = 2 * needed
    query = 9 / SCALE * (needed / needed.square().sum(-1, keepdim=True)).unsqueeze(1)
    value = F.one_hot(place, 1000).double().unsqueeze(-1)
    rule = Rule(keys=32, groups=8, size=4, segment=64, window=32)
    outputs = [
        F.scaled_dot_product_attention(query, key, value, scale=SCALE),
        *(tree_heads(query, key, value, rule._replace(groups=groups)) for groups in (8, 0)),
    ]
    densely, found, unopened = (int((x > 0.5).sum()) for x in outputs)
    assert unopened < densely / 2 < 0.9 * densely <= found


def dropping(heads: list[Tensor], rule: Rule, share: float, seed: int = 2**40 + 7) -> list[Tensor]:
    given = None, None, torch.tensor(seed), SCALE, share, [*map(float, rule)]
    return run(lambda *x: read_tree(*(y[None] for y in x), *given)[0][0], heads)


@pytest.mark.slow
@given(case=cases(), share=st.sampled_from((0.1, 0.5, 1.0)))
def test_dropout_drops_what_the_formula_drops(case, share):
    if KERNELS["cpu"] is KERNELS["naive"]:
        pytest.skip("it is the formula")
    rule, heads = case[1], random_heads(100, widths=(16, 32) if case[1].size == 8 else (5, 3))
    found = dropping(heads, rule, share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KERNELS, "cpu", KERNELS["naive"])
        assert_same(found, dropping(heads, rule, share))


def test_dropout_drops_each_weight_by_itself():
    heads = [*random_heads(400)[:2], torch.eye(400).double().expand(2, -1, -1)]
    rule = Rule(keys=2000, size=8, segment=32, window=5, margin=math.inf)
    whole, given = tree_heads(*heads, rule), [None, None, None, SCALE, 0.25, [*map(float, rule)]]
    kept = []
    for given[2] in (torch.tensor(5), torch.tensor(6)):
        output = read_tree(*(x[None] for x in heads), *given)[0][0]
        share = (output / whole)[:, whole[0] > 0]
        kept.append((share > 0).double())
        assert (share - kept[-1] / 0.75).abs().max() < 1e-12
        assert abs(kept[-1].mean() - 0.75) < 0.005
    draws = [*kept[0], *kept[1], kept[0][0].roll(1), kept[0][0].roll(401)]
    assert (torch.stack(draws).corrcoef() - torch.eye(len(draws))).abs().max() < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 60, 160])
def test_runs_and_threads_give_the_same_bits(rows):
    heads = random_heads(160, rows=rows)
    want = run(tree_heads, heads)
    for number in (1, 2, 2):
        with threads(number):
            found = run(tree_heads, heads)
        assert all(torch.equal(*pair) for pair in zip(found, want, strict=True))


def test_keys_may_lie_in_a_cache_with_room():
    query, *others = random_heads(150, rows=20)
    room = [torch.full((2, 190, x.size(-1)), torch.nan, dtype=x.dtype) for x in others]
    kept = [space[:, 11:161].copy_(x) for space, x in zip(room, others, strict=True)]
    by_token = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in (query, *others)]
    shared = [x[:1].expand(2, -1, -1) for x in others]
    for heads in ([query, *kept], by_token, [query, *shared]):
        assert torch.equal(tree_heads(*heads), tree_heads(*(x.contiguous() for x in heads)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_stays_inside_the_budget(dtype):
    heads = [x.to(dtype) for x in random_heads(150)]
    plain, true = (
        run(oracle_heads, [x.to(wide) for x in heads]) for wide in (torch.float32, torch.float64)
    )
    for mine, low, exact in zip(run(tree_heads, heads), plain, true, strict=True):
        assert_within_budget(mine, low.to(dtype), exact, ulps=8.0)


def test_equal_keys_are_read_alike():
    query, key, value = random_heads(150, (2, 2))
    output, *gradients = run(tree_heads, [query, torch.full_like(key, 0.1), value])
    assert_same([output], [value.cumsum(1) / torch.arange(1, 151).unsqueeze(-1)])
    assert all(x.isfinite().all() for x in gradients)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e3, 1e6])
@pytest.mark.parametrize(("widths", "size"), [((5, 3), 2), ((16, 32), 8)])
def test_scores_far_apart_stay_finite(factor, widths, size):
    query, key, value = random_heads(150, widths=widths)
    heads, rule = [query, factor * key, value], RULE._replace(size=size, segment=4 * size)
    assert_same(run(tree_heads, heads, rule), run(oracle_heads, heads, rule), 1e-6)
    assert all(x.isfinite().all() for x in run(tree_heads, [x.float() for x in heads], rule))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rest", [True, False])
def test_single_tokens_widen_what_they_read(dtype, rest):
    heads = [x.to(dtype) for x in random_heads(300, widths=(32, 16))]
    rule = Deep(keys=24, groups=2, size=8, segment=32, window=5, rest=rest)
    _, kept = read_next(*(x[:, :-1] for x in heads), rule, SCALE)
    query, key, value = heads[0][:, -1:], heads[1], heads[2]
    output, kept = read_next(query, key, value, rule, SCALE, kept)
    assert output.dtype == dtype and {x.dtype for x in kept.nodes.keys} == {dtype}
    if KERNELS["cpu"] is not KERNELS["naive"]:  # which would be held to itself
        query, key, value = (x.double() for x in (query, key, value))
        kept = kept._replace(nodes=Nodes(*([x.double() for x in y] for y in kept.nodes[:3])))
    empty = empty_choice(query, 300, kept.tree, rule)
    plain, _ = naive.read(wide(query) * SCALE, key, value, empty, kept.nodes, chosen=False)
    within = 32 * torch.finfo(dtype).eps
    torch.testing.assert_close(output, plain.to(dtype), rtol=within, atol=within)
