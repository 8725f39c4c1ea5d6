import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from jat_graph.jumps.kernels.stone_means import StoneScores, give_back, share_out
from tests.jumps.kernels.support import run, threads
from tests.oracles import incidence
from tests.support import assert_within_budget

forms = pytest.mark.parametrize("form", ["torch", "numba"])


@st.composite
def stone_scores(draw, dtype=torch.float64):
    """Draw scores with some stones, whole numbers that meet t among them, some of them masked."""
    graphs, stones, length = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 40)),
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    columns = torch.randn(graphs, stones, length, generator=generator, dtype=dtype)
    if draw(st.booleans()):
        columns = columns.round()
    masked = torch.rand(graphs, 1, length, generator=generator) < draw(st.sampled_from((0.0, 0.3)))
    threshold = torch.randint(0, 3, (graphs,), generator=generator).to(dtype)
    sides, hard = draw(st.integers(1, 2)), draw(st.booleans())
    return StoneScores(columns.masked_fill(masked, math.nan), threshold, sides, hard)


def links_of(scores):
    """The oracle's links, [G, sides · U, L], and the scores that they come from."""
    z = scores.columns.clone().nan_to_num(0.0).requires_grad_()
    kind, sides = "hard" if scores.hard else "excess", ("positive", "both")[scores.sides - 1]
    return z, incidence(z.mT[None], scores.threshold, kind, sides)[0].mT


def walk(links, x):
    """The walk, its degrees and the stones' means by the definition."""
    sizes = links.sum(-1, keepdim=True)
    means = links @ x / sizes.masked_fill(sizes == 0, 1.0)
    return links.mT @ means, links.sum(1), means


@pytest.mark.slow
@forms
@given(scores=stone_scores(), features=st.integers(1, 40))
def test_values_and_gradients_are_those_of_the_definition(form, scores, features):
    z, links = links_of(scores)
    before, x, grad = torch.randn(3, len(z), z.size(-1), features, dtype=torch.float64)
    to_degree = torch.randn(len(z), z.size(-1), dtype=torch.float64)
    expected = walk(links, x.requires_grad_())
    wanted = torch.autograd.grad(expected[:2], (z, x), (grad, to_degree))
    x = x.detach()
    total, degree, to_x = before.clone(), to_degree.clone(), before.clone()
    means = run("share", form, scores, x, total, degree)
    to_scores = run("give", form, scores, x, means, grad, to_degree, to_x)
    found = total - before, degree - to_degree, means
    assert_close((*found, to_scores, to_x - before), (*expected, *wanted), rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@forms
@given(scores=stone_scores(torch.float32), seed=st.integers(0, 2**20))
def test_single_precision_stays_in_its_budget(form, scores, seed):
    draw = torch.Generator().manual_seed(seed)
    x, grad = torch.randn(2, *scores.columns.mT.shape[:2], 9, generator=draw)
    total, degree, to_x = torch.zeros_like(x), x.new_zeros(x.shape[:2]), torch.zeros_like(x)
    means = run("share", form, scores, x, total, degree)
    to_scores = run("give", form, scores, x, means, grad, degree, to_x)
    results = []
    for dtype in (torch.float32, torch.float64):
        columns, threshold = scores.columns.to(dtype), scores.threshold.to(dtype)
        z, links = links_of(scores._replace(columns=columns, threshold=threshold))
        expected = walk(links, x.to(dtype).requires_grad_())
        far = grad.to(dtype), expected[1].detach()
        results.append((*expected, *torch.autograd.grad(expected[:2], (z,), far)))
    for ours, low, truth in zip((total, degree, means), *(r[:3] for r in results), strict=True):
        assert_within_budget(ours, low.detach(), truth.detach(), ulps=16)
    # the gradient is sums of products that may cancel, all of them: it is judged by its terms
    terms = 9 * x.abs().max() * grad.abs().max()
    found = (to_scores, *(r[3] for r in results))
    flat = (torch.cat([one.flatten(), terms.to(one)[None]]) for one in found)
    assert_within_budget(*flat, ulps=16)


@pytest.mark.parametrize("number", [1, 2])
def test_runs_are_equal(number):
    scores = StoneScores(torch.randn(4, 9, 50), torch.ones(4), 2, False)
    x, runs = torch.randn(4, 50, 8), []
    with threads(number):
        for _ in range(5):
            total, degree = torch.zeros_like(x), torch.zeros(4, 50)
            means, to_x = share_out(scores, x, total, degree), torch.zeros_like(x)
            runs.append([total, degree, give_back(scores, x, means, x, degree, to_x), to_x])
    assert all(torch.equal(a, b) for one in runs for a, b in zip(one, runs[0], strict=True))
