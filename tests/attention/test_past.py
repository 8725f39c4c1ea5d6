"""Tokens that come after others get what they would have got all at once."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph import JatConfig, PairGraph
from jat_graph.attention.jump_heads import JumpHeads
from jat_graph.attention.past import KeptScores, PastTokens
from jat_graph.attention.propagation import head_groups
from jat_graph.masks.tokens import TokenMask, resolve_mask
from tests.oracles import reference_graph, reference_next_rows
from tests.support import (
    CAUSAL_MASKS,
    assert_equal,
    configs,
    heads_and_masks,
    random_tensors,
    with_half_joined,
)

VARIANTS = st.fixed_dictionaries(
    {
        "key_step": st.integers(1, 3),
        "same_sign_only": st.booleans(),
        "normalize_keys": st.booleans(),
        "inclusive": st.booleans(),
        "nodes": st.sampled_from(("all", "selected")),
    }
)


@given(variants=VARIANTS, hops=st.integers(0, 3), rows=st.integers(1, 7), padded=st.integers(0, 3))
def test_the_oracle_is_the_end_of_the_whole(variants, hops, rows, padded):
    query, key = random_tensors(padded + 7 * rows, (1, 1, 7, 3), (1, 1, 7, 3))
    valid = [token >= padded for token in range(7)]
    found = reference_next_rows(
        query[0, 0],
        key[0, 0],
        num_rows=rows,
        hops=hops,
        threshold=0.4,
        scale=0.7,
        valid=valid,
        **variants,
    )
    graph = reference_graph(
        query,
        key,
        threshold=0.4,
        scale=0.7,
        key_selection="strided",
        attention_mask=torch.tensor([valid]),
        is_causal=True,
        **variants,
    )
    power = torch.linalg.matrix_power(graph.adj_norm, hops)
    for got, features in zip(found, (query, key), strict=True):
        assert_equal(got, (power @ features)[0, 0, -rows:])


def everyone(case, config):
    return JumpHeads.everyone(config, case.query.size(1))


def grow(case, config, mask, lengths, past=None):
    """Return the groups of each chunk; chunks end at the lengths."""
    past, jumping = PastTokens() if past is None else past, everyone(case, config)
    chunks = []
    for end in lengths:
        valid = None if mask.valid is None else mask.valid[..., :end]
        chunks.append(
            head_groups(
                case.query[:, :, past.length : end],
                case.key[:, :, :end],
                case.key[:, :, :end],
                jumping,
                mask=TokenMask(valid, causal=True),
                scale=0.7,
                past=past,
            )
        )
        assert past.length == end
    return chunks


def whole(case, config, mask):
    jumping = everyone(case, config)
    return head_groups(case.query, case.key, case.key, jumping, mask=mask, scale=0.7)


def jumping(config, num_heads):
    """Return the config with a jump in some head: otherwise nothing is left behind."""
    ordinary = JumpHeads.everyone(config, num_heads).is_identity
    return replace(config, hop_weights=(0.0, 1.0)) if ordinary else config


def growing_cases(data):
    """Draw a case, a config that joins some of its pairs, and the lengths that it grows by."""
    case = data.draw(heads_and_masks(CAUSAL_MASKS))._replace(scale=0.7)
    config = data.draw(configs("auto", CAUSAL_MASKS, case.query.size(1)))
    config = with_half_joined(jumping(config, case.query.size(1)), case)
    length = case.query.size(2)
    ends = data.draw(st.sets(st.integers(1, length), max_size=4))
    query, key = ((t.nan_to_num() * case.valid).requires_grad_() for t in case[:2])
    mask = resolve_mask(case.mask, case.is_causal, query)
    return case._replace(query=query, key=key), config, mask, sorted(ends | {length})


@given(data=st.data())
def test_growing_gives_what_the_whole_gives_values_and_gradients(data):
    case, config, mask, ends = growing_cases(data)
    chunks, wanted = grow(case, config, mask, ends), whole(case, config, mask)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for number, group in enumerate(wanted):
        rows = [chunk[number].query @ chunk[number].key.mT for chunk in chunks]
        size = group.key.size(2)
        rows = torch.cat([torch.nn.functional.pad(r, (0, size - r.size(-1))) for r in rows], dim=2)
        products = (group.query @ group.key.mT).tril()
        assert_equal(rows.tril(), products)
        weights = torch.randn(products.shape, generator=generator, dtype=products.dtype)
        losses.append([(rows.tril() * weights).sum(), (products * weights).sum()])
    inputs = [case.query, case.key]
    got, want = (torch.autograd.grad(sum(loss), inputs) for loss in zip(*losses, strict=True))
    for mine, theirs in zip(got, want, strict=True):
        assert_equal(mine, theirs)


@given(data=st.data())
def test_cropped_and_reordered_pasts_are_those_of_what_is_left(data):
    case, config, mask, ends = growing_cases(data)
    length, order = ends[-1], torch.randperm(case.query.size(0))
    past = PastTokens()
    grow(case, config, mask, ends, past)
    past.change_batch(lambda x: x[order])
    past.crop(ends[0])
    assert past.length == ends[0]
    if ends[0] == length:
        return
    valid = None if mask.valid is None else mask.valid.expand(len(order), -1, -1)[order]
    moved = case._replace(query=case.query[order], key=case.key[order])
    mask = TokenMask(valid, causal=True)
    (groups,) = grow(moved, config, mask, [length], past)
    for got, want in zip(groups, whole(moved, config, mask), strict=True):
        assert_equal(got.query, want.query[:, :, ends[0] :])
        assert_equal(got.key, want.key)


@pytest.mark.parametrize("first", ["inference_mode", "no_grad"])
def test_a_past_goes_on_in_another_mode(first):
    query, key = random_tensors(3, (2, 1, 40, 4), (2, 1, 40, 4))
    config = JatConfig(PairGraph(threshold=2.0, key_selection="strided", key_step=3))
    options = {"jumping": JumpHeads(config, (0,)), "mask": TokenMask(causal=True), "scale": 0.5}
    (wanted,) = head_groups(query, key, key, **options)
    past, end = PastTokens(), 0
    for size, name in ((20, first), (1, first), (1, first), (18, "no_grad")):
        end += size
        with getattr(torch, name)():
            rows = slice(end - size, end)
            known = key[:, :, :end]
            (group,) = head_groups(query[:, :, rows], known, known, past=past, **options)
        assert_equal(group.key, wanted.key[:, :, :end])
        assert_equal(group.query, wanted.query[:, :, rows])


def test_room_for_more_scores_saves_copies():
    kept, written = KeptScores(torch.empty(1, 1, 0, 0)), torch.randn(1, 1, 5, 400)
    places = []
    for token in range(400):
        kept.add(written[..., token : token + 1])
        places.append(kept.columns.data_ptr())
    assert torch.equal(kept.columns[:, :, :5, :400], written)
    room = kept.columns.clone()
    room[:, :, :5, :400] = torch.nan
    assert bool(room.isnan().all())
    assert len(set(places)) < 10


def test_nothing_is_kept_under_other_masks():
    query, key = random_tensors(1, (1, 2, 6, 4), (1, 2, 6, 4))
    jumping = JumpHeads(JatConfig(), (0, 1))
    for mask in (TokenMask(), TokenMask(causal=True, pairs=torch.ones(1, 1, 6, 6).bool())):
        past = PastTokens()
        head_groups(query, key, key, jumping, mask=mask, scale=1.0, past=past)
        assert past.length == 0


@pytest.mark.parametrize("selection", [{}, {"key_selection": "strided", "key_step": 3}])
def test_a_next_token_is_the_oracles(selection):
    query, key = random_tensors(4, (1, 1, 9, 4), (1, 1, 9, 4))
    config = JatConfig.paper(threshold=0.5, hop_weights=(0.0, 0.0, 1.0), **selection)
    past = PastTokens()
    options = {"jumping": JumpHeads(config, (0,)), "scale": 0.5, "past": past}
    mask = TokenMask(causal=True)
    head_groups(query[:, :, :6], key[:, :, :6], key[:, :, :6], mask=mask, **options)
    (group,) = head_groups(query[:, :, 6:], key, key, mask=mask, **options)
    queries, keys = reference_next_rows(
        query[0, 0],
        key[0, 0],
        num_rows=3,
        hops=2,
        threshold=0.5,
        scale=0.5,
        key_step=config.graph.key_step or 1,
    )
    assert_equal(group.query[0, 0], queries)
    assert_equal(group.key[0, 0, 6:], keys)
    graph = reference_graph(query, key, threshold=0.5, scale=0.5, is_causal=True, **selection)
    assert 0.1 < (graph.adjacency > 0).double().sum() / (9 * 8 / 2) < 0.9
