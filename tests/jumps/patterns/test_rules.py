"""Every pattern's pairs are those of its plain rule, as many as its formula says, and reach all."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from jat_graph.patterns import (
    Causal,
    DilatedWindow,
    Documents,
    Fixed,
    GlobalMask,
    GlobalTokens,
    KeyRange,
    LocalBlocks,
    Pattern,
    RandomBlocks,
    Strided,
    Window,
    bigbird,
    longformer,
    parse_pattern,
    pattern_attention,
    reaches_all,
)
from tests.jumps.patterns.support import all_pairs, packed, patterns, random_heads
from tests.oracles.patterns import (
    reference_causal,
    reference_dilated_window,
    reference_documents,
    reference_fixed,
    reference_global_mask,
    reference_global_tokens,
    reference_local_blocks,
    reference_pairs,
    reference_strided,
    reference_window,
)

LENGTHS = st.integers(1, 24)
SIZES = st.integers(1, 30)


def check(pattern: Pattern, length: int, *rules) -> None:
    for head, rule in enumerate(rules):
        got = all_pairs(pattern, length, len(rules))[0, head]
        assert_close(got, reference_pairs(rule, 1, length)[0])


@settings(deadline=None, max_examples=25)
@given(LENGTHS, SIZES, st.integers(1, 6))
def test_pairs_are_those_of_the_plain_rule(length: int, size: int, other: int) -> None:
    check(Window(size), length, reference_window(size))
    check(DilatedWindow(size, other), length, reference_dilated_window(size, other))
    check(GlobalTokens(size), length, reference_global_tokens(size))
    check(Causal(), length, reference_causal())
    for neighbours, sides in {"own": (0, 0), "left": (1, 0), "both": (1, 1)}.items():
        check(LocalBlocks(size, neighbours), length, reference_local_blocks(size, *sides))


@settings(deadline=None, max_examples=50)
@given(LENGTHS, SIZES, st.integers(2, 5), st.data())
def test_heads_of_sparse_transformers_take_turns_or_merge(length, size, factors, data) -> None:
    summary = data.draw(st.integers(1, size))
    for kind, rules in (
        (partial(Strided, size), reference_strided(size, factors)),
        (partial(Fixed, size, summary), reference_fixed(size, summary, factors)),
    ):
        check(kind(factors=factors), length, *rules, rules[0])
        check(kind("merged", factors), length, lambda *pair, own=rules: any(r(*pair) for r in own))
        if factors == 2:
            row, column = rules
            check(kind("rows"), length, row)
            check(kind("columns"), length, column)


@settings(deadline=None, max_examples=50)
@given(patterns(), st.integers(1, 60))
def test_global_tokens_read_every_token(pattern: Pattern, length: int) -> None:
    pairs = all_pairs(pattern, length, pattern.period)
    assert pairs[:, :, : pattern.num_global].all()


def test_documents_are_kept_apart_in_every_sequence() -> None:
    documents = packed(30)
    got = all_pairs(documents, 30)[:, 0]
    for pairs, ids in zip(got, documents.ids.tolist(), strict=True):
        assert_close(pairs, reference_pairs(reference_documents(ids), 1, 30)[0])
    assert documents.num_edges(30) == int(got.sum())


@settings(deadline=None, max_examples=150)
@given(patterns(), st.integers(1, 300))
def test_the_number_of_edges_is_that_of_the_pairs(pattern: Pattern, length: int) -> None:
    pairs = all_pairs(pattern, length, pattern.period)
    for head in range(pattern.period):
        assert pattern.num_edges(length, head) == int(pairs[0, head].sum())


class Knights(Pattern):
    """A query sees the keys two tokens away: a pattern of one's own."""

    def mask_mod(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q - k).abs() == 2

    def key_ranges(self, first: Tensor, last: Tensor, step: int, length: int) -> list[KeyRange]:
        return [KeyRange(first - 2, last + 3)]


def test_pairs_of_any_pattern_are_counted() -> None:
    assert Knights().num_edges(500) == 2 * 498
    assert (Knights() & Causal()).num_edges(500) == 498
    assert (Knights() | GlobalTokens(500)).num_edges(500) == 500**2
    heads = random_heads(300, dtype=torch.float64)
    outputs = [
        pattern_attention(*heads, pattern=Knights(), backend=backend)
        for backend in ("dense", "blocked")
    ]
    assert_close(*outputs)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**40), st.integers(2, 120))
def test_random_blocks_draw_the_wanted_number_before_each_and_keep_it(
    block: int, count: int, seed: int, length: int
) -> None:
    pattern = RandomBlocks(block, count, seed)
    pairs = all_pairs(pattern, length)[0, 0]
    assert_close(pairs, pairs.T)
    assert_close(all_pairs(pattern, length + 17)[0, 0, :length, :length], pairs)
    blocks = pairs[::block, ::block].tril()
    assert blocks.sum(-1).tolist() == [min(count, place) for place in range(len(blocks))]


def test_random_blocks_are_uniform_and_differ_between_seeds() -> None:
    drawn = torch.stack([all_pairs(RandomBlocks(1, 4, s), 65)[0, 0, 64, :64] for s in range(300)])
    share = drawn.float().mean(0)  # 4 of 64
    assert share.sum() == 4
    assert 0.02 < float(share.min()) and float(share.max()) < 0.12
    assert len({tuple(row.tolist()) for row in drawn}) > 290


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_global_tokens_by_mask_are_those_of_the_plain_rule(mask: list[bool]) -> None:
    pattern, length = GlobalMask(torch.tensor([mask, [False] * len(mask)])), len(mask)
    check(pattern, min(length, 24), reference_global_mask(mask))
    assert pattern.num_edges(length) == int(all_pairs(pattern, length).sum())
    alone = pattern.of_sequence(0)
    assert alone == GlobalMask(torch.tensor([mask])) != GlobalMask(~torch.tensor([mask]))


def test_global_tokens_of_the_call_take_its_mask() -> None:
    pattern, mask = longformer(8, None), torch.tensor([[False, True, False, False]])
    assert pattern.spec == "window:5+global"
    assert pattern.needs_global and not (Window(5) | GlobalTokens(2)).needs_global
    assert (pattern & Causal()).with_global(mask) == (Window(5) | GlobalMask(mask)) & Causal()
    assert pattern.num_edges(20) == Window(5).num_edges(20)
    with pytest.raises(ValueError, match=r"^pattern 'global' must be given its tokens, by "):
        pattern_attention(*random_heads(9, dtype=torch.float64), pattern=pattern)


def test_longformer_and_bigbird_are_unions() -> None:
    assert longformer().spec == "window:257+global:1"
    assert longformer(8, 2) == Window(5) | GlobalTokens(2)
    assert bigbird().spec == "local:64:both+global:64+random:64:3"
    assert bigbird(4, 2, 7) == parse_pattern("local:4:both+global:4+random:4:2:7")
    with pytest.raises(ValueError, match=r"^attention_window must be even, got 7$"):
        longformer(7)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        *((lambda width=width: Window(width), "width of a window") for width in (0, -3, True)),
        (lambda: DilatedWindow(2, 0), "dilation of a dilated window"),
        (lambda: LocalBlocks(0), "size of local blocks"),
        (lambda: LocalBlocks(4, "right"), "neighbours of local blocks"),
        (lambda: GlobalTokens(-1), "number of global tokens"),
        (lambda: Strided(3, "both"), "part of strided attention"),
        (lambda: Strided(3, factors=1), "factors of strided attention"),
        (lambda: Strided(1, factors=32), "factors of strided attention"),
        (lambda: Strided(3, "rows", 3), "factors of strided attention"),
        (lambda: Fixed(9, 1, "turns", "x"), "factors of fixed attention"),
        (lambda: Fixed(10**4, 1, "turns", 4), r"stride \*\* \(factors - 1\) of fixed attention"),
        (lambda: Fixed(3, 4), "summary of fixed attention"),
        (lambda: RandomBlocks(4, 0), "count of random blocks"),
        (lambda: RandomBlocks(4, 1, -1), "seed of random blocks"),
        (lambda: Documents(torch.zeros(3)), "ids of documents"),
        (lambda: GlobalMask(torch.zeros(2, 3)), "mask of global tokens"),
    ],
)
def test_sizes_that_make_no_sense_are_one_line(make, what: str) -> None:
    with pytest.raises(ValueError, match=f"^{what} must be") as error:
        make()
    assert "\n" not in str(error.value)


@settings(deadline=None, max_examples=40)
@given(patterns(), st.integers(1, 16), st.integers(1, 4))
def test_it_follows_every_path(pattern: Pattern, length: int, steps: int) -> None:
    rows = all_pairs(pattern, length, pattern.period).any(0).any(0).tolist()
    looks_ahead = any(row[k] for q, row in enumerate(rows) for k in range(q + 1, length))
    complete = True
    for start in range(length):
        seen = {start}
        for _ in range(steps):
            seen |= {k for q in seen for k in range(length) if rows[q][k]}
        complete &= seen >= set(range(length if looks_ahead else start + 1))
    assert reaches_all(pattern, length, steps) == complete


@settings(deadline=None)
@given(st.integers(1, 150), st.integers(2, 6), st.integers(1, 3), st.booleans())
def test_a_step_along_each_factor_connects_everything(
    length: int, factors: int, summary: int, merged: bool
) -> None:
    stride = next(size for size in range(1, length + 1) if size**factors >= length)
    summary, part = min(summary, stride), "merged" if merged else "turns"
    for pattern, most in (
        (Strided(stride, part, factors), stride),
        (Fixed(stride, summary, part, factors), stride * summary),
    ):
        assert reaches_all(pattern, length, factors)
        way = torch.eye(length)
        for rule in pattern.rules:  # the first layer reads near keys, and the last one far ones
            pairs = all_pairs(rule, length)[0, 0]
            assert int(pairs.sum(-1).max()) <= most
            way = (pairs | torch.eye(length, dtype=torch.bool)).float() @ way
        assert torch.equal(way > 0, torch.ones(length, length).tril() > 0)


def test_a_window_needs_as_many_steps_as_it_fits_in() -> None:
    window = parse_pattern("window:5")  # four tokens a step
    assert not reaches_all(window, 42, 10)
    assert reaches_all(window, 41, 10)


@pytest.mark.parametrize(("length", "steps"), [(0, 1), (5, 0), (5, -1)])
def test_numbers_must_be_positive(length: int, steps: int) -> None:
    with pytest.raises(ValueError, match="must be an integer of at least 1"):
        reaches_all(parse_pattern("causal"), length, steps)


def test_a_default_device_changes_nothing() -> None:
    with torch.device("meta"):
        assert reaches_all(parse_pattern("window:5"), 41, 10)
