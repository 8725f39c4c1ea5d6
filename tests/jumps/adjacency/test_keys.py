"""Which keys vote: how many, which of them, and samples that depend on the seed alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jat_graph.jumps.adjacency.scores
from jat_graph import JatConfig, PairGraph
from jat_graph.core.masks import TokenMask, resolve_mask
from jat_graph.jumps.adjacency.keys import (
    draw,
    number_of_keys,
    numbers_of_keys,
    sample_size,
    sampled_positions,
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

CPU = torch.device("cpu")
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


@given(
    seed=st.integers(0, 2**63 - 1),
    purpose=st.integers(0, 9),
    sizes=st.tuples(st.integers(0, 3000), st.integers(0, 3000)),
)
def test_a_shorter_draw_is_the_start_of_a_longer_one(seed, purpose, sizes):
    short, long = sorted(sizes)
    whole = draw(seed, long, purpose, CPU)
    assert torch.equal(draw(seed, short, purpose, CPU), whole[:short])
    assert ((whole >= 0) & (whole < 2**31)).all()


def test_draws_differ_by_seed_and_purpose():
    draws = [draw(seed, 64, purpose, CPU) for seed in range(4) for purpose in range(1, 5)]
    assert len({tuple(numbers.tolist()) for numbers in draws}) == 16


def test_a_draw_leaves_the_global_generator_alone():
    torch.manual_seed(7)
    want = torch.rand(3)
    torch.manual_seed(7)
    draw(0, 10, 1, CPU)
    assert torch.equal(torch.rand(3), want)


def sample_of(config, valid):
    valid = torch.tensor(valid)[None, None]
    position, chosen = sampled_positions(config, valid, valid.sum(-1, keepdim=True))
    assert position.shape == chosen.shape == (1, 1, sample_size(config, valid.size(-1)))
    assert len(set(position.flatten().tolist())) == position.numel()
    return torch.zeros_like(valid).scatter(-1, position, chosen)[0, 0]


@given(valid=st.lists(st.booleans(), min_size=1, max_size=40), seed=st.integers(0, 2**40))
def test_the_sample_depends_on_the_seed_and_the_number_of_tokens_only(valid, seed):
    config = JatConfig(PairGraph(key_selection="sampled", key_factor=1.5), seed=seed)
    mask = torch.tensor(valid)
    count = int(mask.sum())
    sampled = sample_of(config, valid)
    assert not (sampled & ~mask).any()
    assert int(sampled.sum()) == sample_size(config, count)
    if count:
        assert torch.equal(sampled[mask], sample_of(config, [True] * count))


def test_a_sample_is_even_over_the_tokens():
    counts = torch.zeros(10)
    for seed in range(400):
        config = JatConfig(PairGraph(key_selection="sampled", key_factor=1.3), seed=seed)  # 3 of 10
        counts += sample_of(config, [True] * 10)
    assert counts.sum() == 1200
    assert 80 <= counts.min() and counts.max() <= 160


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
