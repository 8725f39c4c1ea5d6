import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, PairGraph
from jat_graph.core.compiling import steps
from jat_graph.core.masks import TokenMask, resolve_mask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import MapScores, QueryKeyScores
from tests.support import (
    CAUSAL_MASKS,
    MASKS,
    PADDING_MASKS,
    PAIR_MASKS,
    configs,
    heads_and_masks,
    oracle_graph,
)


def opened(config, case):
    mask = resolve_mask(case.mask, case.is_causal, case.query)
    return PairAdjacency.of_scores(config, QueryKeyScores(case.query, case.key, 1.0), mask)


@pytest.mark.parametrize("masks", [PADDING_MASKS, CAUSAL_MASKS, PAIR_MASKS])
@given(data=st.data())
def test_key_scores_are_masked_and_counted_as_the_oracles(masks, data):
    case = data.draw(heads_and_masks(masks))._replace(scale=1.0)
    config = data.draw(configs("dense", masks, case.query.size(1)))
    pairs = opened(config, case)
    truth = oracle_graph(config, case)
    seen = case.pairs & truth.voters.unsqueeze(-2)
    if config.graph.nodes == "selected":
        seen = seen & truth.voters.unsqueeze(-1)
    scores, norms = pairs.key_scores()
    assert (norms is None) == (not config.graph.normalize_keys)
    # Every entry that is not masked holds a key's score, and each key that votes has one.
    assert torch.equal((~scores.isnan()).sum(-1), seen.sum(-1))
    wanted = truth.scores.masked_fill(~seen, 0.0).sum(-1)
    torch.testing.assert_close(scores.nan_to_num().sum(-1), wanted, rtol=1e-10, atol=1e-10)
    rows = seen.any(-1)
    voters = pairs.voters().expand(rows.shape)
    assert torch.equal(voters[rows], seen.sum(-1)[rows].to(voters.dtype))
    assert (voters >= 1).all()


@given(case=heads_and_masks(MASKS))
def test_edges_are_allowed_pairs_of_two_tokens(case):
    pairs = opened(JatConfig(), case)
    allowed = case.pairs & ~torch.eye(case.query.size(2), dtype=torch.bool)
    assert torch.equal(pairs.edge_mask().expand(allowed.shape), allowed)


@given(case=heads_and_masks(PADDING_MASKS + CAUSAL_MASKS), elements=st.sampled_from((1, 40, 10**6)))
def test_blocks_of_keys_are_the_whole(case, elements):
    pairs = opened(JatConfig(PairGraph(normalize_keys=True)), case)
    scores, norms = pairs.key_scores()
    slices = list(steps(pairs.num_keys, elements, pairs.source.shape.numel()))
    blocks = [(keys, *pairs.key_scores(keys)) for keys in slices]
    assert torch.cat([part for _, part, _ in blocks], dim=-1).allclose(
        scores, rtol=1e-12, atol=1e-12, equal_nan=True
    )
    torch.testing.assert_close(torch.cat([norm for _, _, norm in blocks], dim=-1), norms)
    assert [key for keys, _, _ in blocks for key in range(pairs.num_keys)[keys]] == list(
        range(pairs.num_keys)
    )


def test_selected_nodes_are_the_keys_that_vote():
    source = MapScores(torch.zeros(2, 1, 6, 6))
    valid = torch.tensor([[[True] * 6], [[False, True] + [False] * 4]])
    config = JatConfig(PairGraph(nodes="selected", key_selection="strided", num_keys=3))
    nodes = PairAdjacency.of_scores(config, source, TokenMask(valid)).selected
    assert nodes[:, 0].nonzero().tolist() == [[0, 0], [0, 2], [0, 4], [1, 1]]
    everyone = config.replace(key_selection="all", num_keys=None)
    assert PairAdjacency.of_scores(everyone, source, TokenMask(valid)).selected is None
