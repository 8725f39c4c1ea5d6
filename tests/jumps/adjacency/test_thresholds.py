import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, PairGraph, jump_operator
from jat_graph.core.masks import resolve_mask
from jat_graph.jumps.adjacency.keys import select_keys
from jat_graph.jumps.adjacency.pairs import SAMPLED_TRIPLES, VoteRule, adaptive_threshold
from jat_graph.jumps.adjacency.scores import QueryKeyScores
from tests.inputs import random_heads
from tests.jumps.adjacency.support import sampled_triples
from tests.oracles import reference_graph, reference_scores
from tests.support import (
    PADDING_MASKS,
    SELECTIONS,
    Case,
    heads_and_masks,
    oracle_graph,
    random_tensors,
)


def found_threshold(config, case):
    mask = resolve_mask(case.mask, case.is_causal, case.query)
    source = QueryKeyScores(case.query, case.key, case.scale or case.query.size(-1) ** -0.5)
    keys = select_keys(config, source, mask)
    return adaptive_threshold(config, VoteRule.of(config.graph, source), source, keys, mask)


@pytest.mark.filterwarnings("ignore:vote_rate=.*:UserWarning")
@given(
    case=heads_and_masks(PADDING_MASKS),
    rate=st.floats(0.01, 0.99),
    seed=st.integers(0, 99),
    selection=st.sampled_from(SELECTIONS),
    variants=st.tuples(st.booleans(), st.booleans()),
)
def test_the_quantile_is_the_oracles(case, rate, seed, selection, variants):
    config = JatConfig(
        PairGraph(
            vote_rate=rate,
            key_selection=selection,
            key_factor=1.0,
            same_sign_only=variants[0],
            normalize_keys=variants[1],
        ),
        seed=seed,
    )
    found = found_threshold(config, case)
    torch.testing.assert_close(found, oracle_graph(config, case).threshold, rtol=1e-12, atol=0)


@pytest.mark.parametrize("rate", [0.05, 0.1234, 0.4])
def test_the_quantile_is_a_sampled_product_without_interpolation(rate):
    # So many tokens that hardly two sampled products are equal.
    query, key = random_tensors(0, (1, 1, 120, 8), (1, 1, 120, 8))
    config = JatConfig(PairGraph(vote_rate=rate))
    scores = reference_scores(query, key)[0, 0]
    i, k, j = sampled_triples(config, 120).T
    products = (scores[i, j] * scores[k, j]).sort().values
    assert len(products.unique()) > 0.9 * SAMPLED_TRIPLES
    found = found_threshold(config, Case(query, key, key, None, False))
    wanted = np.quantile(products.numpy(), 1 - rate, method="inverted_cdf")
    assert math.isclose(found.item(), wanted, rel_tol=1e-12)
    assert int((products > found.item() * (1 + 1e-12)).sum()) == int(rate * SAMPLED_TRIPLES)


def test_a_share_that_only_negative_products_could_reach_is_warned_about():
    query, key, _, _ = random_heads(1, 1, 12, 4)
    config = JatConfig(PairGraph(vote_rate=0.9))
    with pytest.warns(UserWarning, match=r"vote_rate=0.9 needs a threshold below 0; 0 is used"):
        operator = jump_operator(query, key, config=config)
    zero = reference_graph(query, key, threshold=0.0)
    torch.testing.assert_close(operator.base.to_dense(), zero.adjacency)
