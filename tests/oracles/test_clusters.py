"""What each step of attention by clusters says, by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import HypergraphConv

from tests.oracles import (
    ReferenceClusters,
    cluster_best_keys,
    cluster_centred,
    cluster_exact_set,
    cluster_join,
    cluster_landmarks,
    cluster_means,
    cluster_metric,
    cluster_output,
    cluster_rows,
    cluster_scores,
    reference_clustered_attention,
    reference_clusters,
)

SCALE = 0.7

seeds = st.integers(0, 9999)
lengths = st.integers(1, 24)


def random_heads(seed: int, length: int, width: int = 5) -> list[Tensor]:
    """Gaussian queries, keys and values, [n, D] each."""
    generator = torch.Generator().manual_seed(seed)
    return [*torch.randn(3, length, width, generator=generator, dtype=torch.float64)]


def assert_close(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10)


@given(seed=seeds, length=lengths)
def test_the_metric_gives_the_inner_products_of_centred_rows(seed, length):
    query, key, _ = random_heads(seed, length)
    centred = query - query.mean(dim=0)
    rows = SCALE * query @ key.T
    rows = rows - rows.mean(dim=0) - rows.mean(dim=1, keepdim=True) + rows.mean()
    metric = cluster_metric(cluster_centred(key))
    assert_close(length * SCALE**2 * centred @ metric @ centred.T, rows @ rows.T)
    assert_close(cluster_centred(query), centred)
    assert not cluster_centred(query[:1].expand(length, -1)).any()


@pytest.mark.parametrize(
    ("length", "clusters", "want"),
    [
        (1, None, [0]),
        (3, None, [0, 1, 2]),
        (5, None, [0, 1, 2, 3, 4]),
        (9, None, [0, 1, 3, 4, 6, 8]),  # ⌈2√9⌉ = 6
        (10, None, [0, 1, 3, 4, 6, 7, 9]),  # ⌈2√10⌉ = 7
        (10, 1, [0]),
        (10, 3, [0, 4, 9]),
        (3, 8, [0, 1, 2]),
    ],
)
def test_landmarks_are_spread_from_the_first_token_to_the_last(length, clusters, want):
    assert cluster_landmarks(length, clusters).tolist() == want


@given(length=st.integers(1, 5000))
def test_there_are_twice_the_root_of_the_length(length):
    assert len(cluster_landmarks(length)) == min(length, math.ceil(2 * math.sqrt(length)))


@given(seed=seeds, length=st.integers(4, 24), count=st.integers(1, 6))
def test_a_token_joins_the_landmark_whose_row_has_the_largest_cosine(seed, length, count):
    query, key, _ = random_heads(seed, length)
    centred, landmarks = cluster_centred(query), cluster_landmarks(length, count)
    joined = cluster_join(centred, centred[landmarks], cluster_metric(cluster_centred(key)))
    rows = centred @ (key - key.mean(dim=0)).T
    for i in range(length):
        cosines = torch.cosine_similarity(rows[i], rows[landmarks])
        assert cosines[joined[i]] >= cosines.max() - 1e-10


def test_equal_landmarks_and_tokens_like_none_go_to_the_lower_one():
    centres = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    tokens = torch.tensor([[3.0, 0.0], [0.0, 0.0], [0.0, 2.0], [-1.0, 0.0]])
    assert cluster_join(tokens, centres, torch.eye(2)).tolist() == [1, 0, 0, 0]
    assert cluster_join(tokens, centres, torch.zeros(2, 2)).tolist() == [0] * 4


@given(seed=seeds, length=lengths, count=st.integers(1, 6))
def test_means_are_pygs_hypergraph_convolution(seed, length, count):
    query, _, _ = random_heads(seed, length)
    joined = torch.randint(count, (length,), generator=torch.Generator().manual_seed(seed))
    convolution = HypergraphConv(5, 5, bias=False).double()
    convolution.lin.weight.data = torch.eye(5, dtype=torch.float64)
    links = torch.stack([torch.arange(length), joined])
    means = cluster_means(query, joined, count)
    assert_close(means[joined], convolution(query, links, num_edges=count))
    assert not means[[c for c in range(count) if c not in joined]].any()


def test_the_best_keys_of_a_row_are_the_first_of_equal_ones():
    rows = torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    for keys, want in ((0, [[], []]), (2, [[1, 3], [0, 1]]), (3, [[1, 2, 3], [0, 1, 2]])):
        best = cluster_best_keys(rows, keys)
        assert [row.nonzero().flatten().tolist() for row in best] == want
    assert cluster_best_keys(rows, 9).all()


def test_exact_keys_are_the_blocks_around_and_the_best_of_the_cluster():
    best = torch.zeros(2, 7, dtype=torch.bool)
    best[0, 6] = best[1, 0] = True
    chosen = ReferenceClusters(torch.tensor([0, 1, 0, 1, 0, 1, 0]), best)
    assert [row.nonzero().flatten().tolist() for row in cluster_exact_set(chosen, 2)] == [
        [0, 1, 2, 3, 6],
        [0, 1, 2, 3],
        [0, 1, 2, 3, 4, 5, 6],
        [0, 1, 2, 3, 4, 5],
        [2, 3, 4, 5, 6],
        [0, 2, 3, 4, 5, 6],
        [4, 5, 6],
    ]
    assert torch.equal(cluster_exact_set(chosen, 0), best[chosen.joined])
    assert cluster_exact_set(chosen, 4).all()


@given(seed=seeds, length=lengths)
def test_scores_are_the_clusters_where_they_are_not_exact(seed, length):
    query, key, value = random_heads(seed, length)
    chosen = reference_clusters(query, key, scale=SCALE, clusters=3, keys=2)
    queries = cluster_means(query, chosen.joined, 3)
    exact = cluster_exact_set(chosen, 1)
    scores = cluster_scores(query, key, queries, chosen, exact, SCALE)
    mean_key = key.mean(dim=0)
    for i in range(length):
        for j in range(length):
            want = query[i] @ key[j]
            if not exact[i, j]:
                want = queries[chosen.joined[i]] @ (key[j] - mean_key) + query[i] @ mean_key
            assert scores[i, j].item() == pytest.approx(SCALE * want.item(), abs=1e-10)
    weights = scores.exp()
    assert_close(cluster_output(scores, value), weights @ value / weights.sum(-1, keepdim=True))
    assert_close(cluster_output(scores, value, torch.eye(length, dtype=torch.bool)), value)


@given(seed=seeds, length=lengths)
def test_a_mean_of_those_that_joined_stands_for_a_cluster(seed, length):
    query, key, _ = random_heads(seed, length)
    centred, metric = cluster_centred(query), cluster_metric(cluster_centred(key))
    landmarks = cluster_landmarks(length)
    joined = cluster_join(centred, centred[landmarks], metric)
    chosen = reference_clusters(query, key, scale=SCALE, keys=3)
    assert torch.equal(chosen.joined, joined)
    queries = cluster_means(query, joined, len(landmarks))
    rows = cluster_rows(queries, key - key.mean(dim=0), SCALE)
    least = rows.masked_fill(~chosen.best, math.inf).amin(dim=-1)
    assert (rows.masked_fill(chosen.best, -math.inf).amax(dim=-1) <= least + 1e-10).all()


def test_sequences_and_grouped_heads_are_read_on_their_own():
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 30, 3, generator=generator, dtype=torch.float64)
    key, value = torch.randn(2, 2, 2, 30, 3, generator=generator, dtype=torch.float64)
    sequence = torch.randint(-1, 2, (2, 30), generator=generator)
    settings = {"scale": SCALE, "keys": 2, "block": 2}
    output = reference_clustered_attention(query, key, value, sequence=sequence, **settings)
    assert not output.masked_select((sequence < 0)[:, None, :, None]).any()
    for b, number in ((0, 0), (0, 1), (1, 0), (1, 1)):
        own = sequence[b] == number
        for h in range(4):
            alone = [x[None, None, own] for x in (query[b, h], key[b, h // 2], value[b, h // 2])]
            assert_close(output[b, h, own], reference_clustered_attention(*alone, **settings)[0, 0])
