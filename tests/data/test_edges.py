"""Edges and words of maps against loops over all pairs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.data.edges import build_graph, joined, pool_words
from tests.data.support import assert_is, slow_graph

limits = st.tuples(st.sampled_from((0.0, 0.1, 0.3)), st.sampled_from((None, 1, 2, 5)))


@given(
    size=st.sampled_from((0, 1, 2, 3, 7)),
    heads=st.integers(1, 3),
    limit=limits,
    seed=st.integers(0, 999),
    causal=st.booleans(),
)
def test_a_pair_is_joined_where_any_head_joins_it(
    size: int, heads: int, limit: tuple[float, int | None], seed: int, causal: bool
) -> None:
    torch.manual_seed(seed)
    hidden = torch.randn(size, 4, dtype=torch.float64)
    maps = torch.randn(heads, size, size, dtype=torch.float64).softmax(-1)
    maps = maps.tril() if causal else maps
    wanted = slow_graph(hidden, list(maps), *limit)
    assert_is(build_graph(hidden, maps.clone(), *limit), wanted)


@given(
    words=st.lists(st.sampled_from((None, 0, 1, 2, 5)), max_size=8).map(
        lambda found: sorted(found, key=lambda word: -1 if word is None else word)
    ),
    limit=limits,
    seed=st.integers(0, 999),
)
def test_words_are_sums_and_means_of_tokens(
    words: list[int | None], limit: tuple[float, int | None], seed: int
) -> None:
    torch.manual_seed(seed)
    hidden = torch.randn(len(words), 4, dtype=torch.float64)
    maps = torch.randn(2, len(words), len(words), dtype=torch.float64).softmax(-1)
    owners = torch.tensor([-1 if word is None else word for word in words], dtype=torch.long)
    states, pooled, numbers = pool_words(hidden, maps, owners)
    assert numbers.tolist() == sorted({word for word in words if word is not None})
    wanted = slow_graph(hidden, list(maps), *limit, words)
    assert_is(build_graph(states, pooled, *limit), wanted)


def test_rows_of_words_still_sum_to_one() -> None:
    maps = torch.randn(2, 5, 5).softmax(-1)
    _, pooled, _ = pool_words(torch.randn(5, 3), maps, torch.tensor([0, 0, 1, 2, 2]))
    torch.testing.assert_close(pooled.sum(-1), torch.ones(2, 3))


def test_what_weighs_as_much_as_the_last_one_stays() -> None:
    maps = torch.tensor([[[0.0, 0.25, 0.25, 0.5], *[[0.0] * 4] * 3]])
    assert joined(maps, 0.0, 1)[0].tolist() == [False, False, False, True]
    assert joined(maps, 0.0, 2)[0].tolist() == [False, True, True, True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_weight_is_no_edge(dtype: torch.dtype) -> None:
    graph = build_graph(torch.zeros(3, 2, dtype=dtype), torch.zeros(2, 3, 3, dtype=dtype), 0.0, 2)
    assert graph.num_nodes == 3 and graph.edge_attr.shape == (0, 2)
    assert graph.edge_index.shape == (2, 0) and graph.edge_index.dtype == torch.long
