import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jat_graph.jumps.adjacency.scores
from jat_graph import JatConfig, PairGraph
from jat_graph.core.masks import TokenMask, resolve_mask
from jat_graph.jumps.adjacency.keys import (
    number_of_keys,
    numbers_of_keys,
    sample_size,
    select_keys,
    unsupported_selection,
)
from jat_graph.jumps.adjacency.scores import MapScores, QueryKeyScores
from tests.oracles import (
    reference_num_keys,
    reference_num_samples,
    reference_scores,
    reference_voting_keys,
)
from tests.support import PADDING_MASKS, SELECTIONS, heads_and_masks, oracle_settings

NAMES = ("key_selection", "num_keys", "key_factor", "key_step", "sample_ranks")


def as_mask(keys, shape):
    """The voting keys as a mask of tokens."""
    batch, heads, _ = shape
    if keys.index is None:
        everything = torch.ones(shape, dtype=torch.bool)
        return everything if keys.valid is None else everything & keys.valid
    chosen = torch.zeros(shape, dtype=torch.bool)
    for b in range(batch):
        for h in range(heads):
            entries = keys.index[b, h]
            if keys.valid is not None:
                entries = entries[keys.valid.expand(batch, heads, -1)[b, h]]
            assert entries.tolist() == sorted(set(entries.tolist()))
            chosen[b, h, entries] = True
    return chosen


@pytest.mark.parametrize("selection", SELECTIONS)
@given(
    case=heads_and_masks(PADDING_MASKS),
    factor=st.sampled_from((0.2, 1.0, 2.0, 5.0)),
    number=st.sampled_from((None, None, 1, 3, 99)),
    seed=st.integers(0, 99),
)
def test_the_keys_are_the_oracles(selection, case, factor, number, seed):
    config = JatConfig(
        PairGraph(key_selection=selection, key_factor=factor, num_keys=number), seed=seed
    )
    source = QueryKeyScores(case.query, case.key, 1.0)
    keys = select_keys(config, source, resolve_mask(case.mask, False, case.query))
    settings = oracle_settings(config, source.shape[2])
    wanted = reference_voting_keys(
        reference_scores(case.query, case.key, 1.0),
        case.pairs,
        **{name: settings[name] for name in NAMES if name in settings},
    )
    assert torch.equal(as_mask(keys, source.shape), wanted)


@given(
    count=st.integers(1, 3000),
    factor=st.floats(0.01, 20),
    number=st.none() | st.integers(1, 99),
    selection=st.sampled_from(SELECTIONS),
)
def test_how_many_keys_vote(count, factor, number, selection):
    config = JatConfig(PairGraph(key_selection=selection, key_factor=factor, num_keys=number))
    wanted = reference_num_keys(count, selection, num_keys=number, key_factor=factor)
    assert number_of_keys(config, count) == wanted
    assert sample_size(config, count) == reference_num_samples(count, selection, key_factor=factor)
    assert 1 <= number_of_keys(config, count) <= count
    assert numbers_of_keys(config, torch.tensor([0, count])).tolist() == [0, wanted]


def test_the_numbers_of_the_paper():
    config = JatConfig(PairGraph(key_selection="significance"))
    assert [number_of_keys(config, n) for n in (0, 1, 2, 10, 512)] == [0, 1, 2, 10, 32]
    released = JatConfig.released(efficient=True)
    assert [number_of_keys(released, n) for n in (1, 10, 128, 512)] == [1, 6, 10, 14]


# --- ties ----------------------------------------------------------------------------------------


def test_ties_go_to_the_lower_index():
    scores = torch.zeros(1, 1, 6, 6)
    scores[0, 0, 0] = torch.tensor([1.0, 3.0, 2.0, 3.0, 2.0, 2.0])
    config = JatConfig(PairGraph(key_selection="significance", num_keys=4))
    keys = select_keys(config, MapScores(scores), TokenMask())
    assert keys.index.flatten().tolist() == [1, 2, 3, 4]


def test_significance_is_streamed(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    source = MapScores(torch.randn(2, 2, 30, 30, generator=generator))
    for selection in ("significance", "sampled", "sampled_queries"):
        config = JatConfig(PairGraph(key_selection=selection, num_keys=7))
        whole = select_keys(config, source, TokenMask()).index
        with monkeypatch.context() as patch:
            patch.setattr(jat_graph.jumps.adjacency.scores, "BLOCK", 4 * 30 * 7)
            assert torch.equal(select_keys(config, source, TokenMask()).index, whole)


# --- small parts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "mask", "reasons"),
    [
        ({}, TokenMask(causal=True), 0),
        ({"key_selection": "strided", "key_step": 2}, TokenMask(causal=True), 0),
        ({"key_selection": "strided"}, TokenMask(causal=True), 1),
        ({"key_selection": "significance", "vote_rate": 0.1}, TokenMask(causal=True), 2),
        ({"key_selection": "significance", "vote_rate": 0.1}, TokenMask(), 0),
        ({}, TokenMask(pairs=torch.ones(1, 1, 2, 2).bool()), 0),
        ({"key_selection": "strided"}, TokenMask(pairs=torch.ones(1, 1, 2, 2).bool()), 1),
        ({"vote_rate": 0.1}, TokenMask(pairs=torch.ones(1, 1, 2, 2).bool()), 1),
    ],
)
def test_reasons_against_a_selection(settings, mask, reasons):
    config = JatConfig.paper(**settings)
    found = unsupported_selection(config, mask)
    assert len(found) == reasons
    if reasons and config.graph.key_selection != "all":
        source = MapScores(torch.zeros(1, 1, 2, 2))
        with pytest.raises(ValueError, match="key_selection"):
            select_keys(config, source, mask)


def test_a_nan_in_padding_is_no_key():
    query = torch.ones(1, 1, 6, 2, dtype=torch.float64)
    query[:, :, 4:] = 0.0
    config = JatConfig(PairGraph(key_selection="significance", num_keys=6))
    mask = TokenMask(valid=torch.tensor([[[True] * 4 + [False] * 2]]))
    keys = select_keys(config, QueryKeyScores(query, query, 1.0), mask)
    assert as_mask(keys, (1, 1, 6)).tolist() == [[[True] * 4 + [False] * 2]]
    assert math.isclose(float(keys.valid.sum()), 4)
