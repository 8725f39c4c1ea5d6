"""Every backend is the dense reference, in values and gradients; none falls back."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from jat_graph.patterns import (
    Documents,
    GlobalMask,
    GlobalTokens,
    Pattern,
    Window,
    explain_pattern,
    parse_pattern,
    pattern_attention,
)
from tests.jumps.patterns.support import Heads, all_pairs, packed, patterns, random_heads
from tests.oracles import reference_attention
from tests.support import (
    MemoryMeter,
    assert_equal,
    assert_within_budget,
    count_operations,
    make_mask,
    sdpa_kernels,
)

RUN = ("dense", "blocked")
PADDING = ("none", "right", "left", "scattered", "per head", "empty row")
Rule = Callable[[int, Tensor], Tensor]  # of a sequence and its valid tokens


class Mask(NamedTuple):
    """A mask of padding, and whether later tokens are masked, too."""

    attention_mask: Tensor | None = None
    is_causal: bool = False


def oracle_pairs(
    pattern: Pattern, mask: Mask, heads: int, length: int, rule: Rule | None = None
) -> Tensor:
    """Ask the pattern, or a rule, about the valid tokens of one sequence and head at a time."""
    valid = torch.ones(2, heads, length, dtype=torch.bool)
    if mask.attention_mask is not None:
        valid = mask.attention_mask.view(len(mask.attention_mask), -1, length).expand_as(valid)
    pairs = torch.zeros(2, heads, length, length, dtype=torch.bool)
    for batch in range(2):
        for head in range(heads):
            kept = valid[batch, head].nonzero().squeeze(-1)
            if rule is None:
                own = all_pairs(pattern.of_head(head), len(kept))[0, 0]
            else:
                own = rule(batch, kept)
            pairs[batch, head][kept[:, None], kept] = own
    return pairs.tril() if mask.is_causal else pairs


def oracle(heads: Heads, pattern: Pattern, mask: Mask, rule: Rule | None = None) -> Tensor:
    pairs = oracle_pairs(pattern, mask, heads.query.size(1), heads.query.size(2), rule)
    return reference_attention(*heads, pairs, 0.3)


def apart(documents: Documents) -> Rule:
    """Return the rule of packed documents."""

    def rule(batch: int, kept: Tensor) -> Tensor:
        ids = documents.ids[batch, kept]
        return ids[:, None] == ids

    return rule


def gradients(output: Tensor, heads: Heads) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output.sin().sum(), heads)


def run(heads: Heads, pattern: Pattern, mask: Mask, backend: str, **options: Any) -> Tensor:
    options |= {"pattern": pattern, "backend": backend, "scale": 0.3}
    return pattern_attention(*heads, **mask._asdict(), **options)


def check(
    backend: str, pattern: Pattern, mask: Mask, heads: Heads, rule: Rule | None = None
) -> None:
    want, got = oracle(heads, pattern, mask, rule), run(heads, pattern, mask, backend)
    assert_equal(got, want)
    assert_equal(gradients(got, heads), gradients(want, heads))


@pytest.mark.parametrize("backend", RUN)
@settings(deadline=None, max_examples=50)
@given(
    patterns(),
    st.sampled_from(PADDING),
    st.booleans(),
    st.integers(1, 140),
    st.sampled_from(((4, 4), (9, 4), (1, 7))),
)
def test_backends_are_the_reference_whatever_comes(
    backend: str, pattern: Pattern, side: str, causal: bool, length: int, widths: tuple[int, int]
) -> None:
    padding, _ = make_mask(side, 2, 3, length, seed=length)
    heads = random_heads(length, widths=widths, dtype=torch.float64)
    check(backend, pattern, Mask(padding, causal), heads)


@pytest.mark.parametrize("backend", RUN)
@pytest.mark.parametrize("side", PADDING)
def test_documents_are_kept_apart(backend: str, side: str) -> None:
    padding, _ = make_mask(side, 2, 3, 70)
    heads = random_heads(70, dtype=torch.float64)
    check(backend, packed(70), Mask(padding), heads, apart(packed(70)))


@pytest.mark.parametrize("backend", RUN)
@pytest.mark.parametrize("side", PADDING)
def test_global_tokens_are_those_of_each_sequence(backend: str, side: str) -> None:
    padding, _ = make_mask(side, 2, 3, 301)
    heads = random_heads(301, dtype=torch.float64)
    everywhere = torch.zeros(2, 301, dtype=torch.bool)
    everywhere[0, [0, 1, 2, 3, 40, 170, 171, 300]] = True  # none in the other sequence

    def rule(batch: int, kept: Tensor) -> Tensor:
        chosen, place = everywhere[batch, kept], torch.arange(len(kept))
        return chosen | chosen[:, None] | ((place - place[:, None]).abs() < 9)

    check(backend, Window(9) | GlobalMask(everywhere), Mask(padding), heads, rule)


@pytest.mark.parametrize("spec", ["window:300+global:1", "local:200", "strided:150:columns"])
def test_blocks_longer_than_a_block_of_queries(spec: str) -> None:
    heads = random_heads(700, heads=1, dtype=torch.float64)
    check("blocked", parse_pattern(spec), Mask(), heads)


@pytest.mark.parametrize("backend", RUN)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_lower_precision_keeps_its_budget(backend: str, dtype: torch.dtype) -> None:
    pattern = parse_pattern("window:20+global:2")
    truth = random_heads(300, dtype=torch.float64)
    rounded = Heads(*(t.detach().to(dtype).requires_grad_() for t in truth))
    exact = Heads(*(t.detach().double().requires_grad_() for t in rounded))
    outputs = [run(rounded, pattern, Mask(), backend)]
    outputs += [oracle(heads, pattern, Mask()) for heads in (rounded, exact)]
    assert_within_budget(*outputs)
    given = (rounded, rounded, exact)
    slopes = (torch.autograd.grad(o.sum(), h) for o, h in zip(outputs, given, strict=True))
    for parts in zip(*slopes, strict=True):
        assert_within_budget(*parts)


@pytest.mark.parametrize("place", [0, 1, 2, None])
def test_features_may_lie_apart_and_one_number_may_stand_for_all(place: int | None) -> None:
    heads = [t.detach()[:1] for t in random_heads(300, widths=(5, 5), dtype=torch.float64)]
    if place is None:
        heads[2] = heads[2][..., :1].expand(-1, -1, -1, 5)
    else:
        heads[place] = heads[place].mT.contiguous().mT
    leaves = Heads(*(t.requires_grad_() for t in heads))
    results = []
    for backend in RUN:
        output = run(leaves, Window(9), Mask(), backend)
        results.append([output, *torch.autograd.grad(output.sum(), leaves)])
    assert_equal(*results)


def test_blocks_store_nothing_of_size_length_squared() -> None:
    peaks = []
    for length in (2048, 4096):
        heads = random_heads(length, heads=2, widths=(8, 8), dtype=torch.float32)
        for _ in range(2):  # the first one makes the layout
            with MemoryMeter() as meter:
                run(heads, Window(32) | GlobalTokens(1), Mask(), "blocked").sum().backward()
        assert meter.largest < length**2 / 8
        assert meter.peak < 12 * sum(t.numel() * t.element_size() for t in heads)
        peaks.append(meter.peak)
    assert peaks[1] < 2.2 * peaks[0]


@pytest.mark.parametrize("spec", ["window:20+global:1", "strided:16", "local:8:both+random:8:2"])
def test_the_fused_kernel_runs_forward_and_backward(spec: str) -> None:
    heads = random_heads(300, widths=(4, 6), dtype=torch.float32)
    with count_operations() as seen:
        run(heads, parse_pattern(spec), Mask(), "blocked").sum().backward()
    assert sdpa_kernels(seen) == {"flash"}
    assert any("flash_attention_for_cpu_backward" in name for name in seen)


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [(Window(17) | GlobalTokens(3), None), (packed(301), apart(packed(301)))],
    ids=["kept", "own"],
)
def test_a_default_device_changes_nothing(pattern: Pattern, rule: Rule | None) -> None:
    heads = random_heads(301, dtype=torch.float64)
    with torch.device("meta"):
        got = run(heads, pattern, Mask(), "blocked")
    assert_equal(got, oracle(heads, pattern, Mask(), rule))


@pytest.mark.parametrize("backend", RUN)
def test_dropout_keeps_the_mean_and_the_pairs(backend: str) -> None:
    heads = random_heads(40, heads=1, dtype=torch.float32)
    pattern = parse_pattern("window:4")
    heads = heads._replace(value=torch.eye(40).expand(2, 1, 40, 40).clone().requires_grad_())
    torch.manual_seed(0)
    runs = [run(heads, pattern, Mask(), backend, dropout_p=0.4) for _ in range(300)]
    plain = run(heads, pattern, Mask(), "dense")
    assert_close(torch.stack(runs).mean(0), plain, rtol=0, atol=0.15)
    assert (runs[0] == 0)[plain == 0].all()
    assert 0.3 < float((runs[0] == 0)[plain > 0].float().mean()) < 0.5
    assert torch.autograd.grad(runs[0].sum(), heads.value)[0].isfinite().all()


def test_dropout_in_blocks_is_the_same_in_backward() -> None:
    heads = random_heads(300, heads=1, dtype=torch.float64)
    torch.manual_seed(0)
    output = run(heads, Window(20), Mask(), "blocked", dropout_p=0.5)
    slope = torch.autograd.grad(output.sum(), heads.value)[0]
    # Linear in the values: the slope times the values is the output.
    assert_equal((slope * heads.value).sum(), output.sum())


@pytest.mark.parametrize("backend", RUN)
def test_a_query_without_a_key_gets_zeros_and_finite_gradients(backend: str) -> None:
    pattern = parse_pattern("random:8:1")  # the first block joins later ones only
    heads = random_heads(60, dtype=torch.float64)
    output = run(heads, pattern, Mask(is_causal=True), backend)
    assert not output[:, :, :8].any()
    assert output[:, :, 8:].all()
    assert all(slope.isfinite().all() for slope in gradients(output, heads))


@pytest.mark.parametrize("backend", RUN)
@pytest.mark.parametrize("dropout_p", [0.0, 0.1])
@pytest.mark.parametrize("held", [1.0, 3e38])
def test_all_padding_gives_zeros_however_large_it_is(
    held: float, dropout_p: float, backend: str
) -> None:
    heads = Heads(*(torch.full((2, 1, 9, 4), held, requires_grad=True) for _ in range(3)))
    mask = Mask(torch.zeros(2, 9).bool())
    output = run(heads, Window(3), mask, backend, dropout_p=dropout_p)
    assert not output.any()
    assert all(not slope.any() for slope in gradients(output, heads))


@pytest.mark.parametrize("backend", RUN)
def test_padding_changes_nothing_whatever_it_holds(backend: str) -> None:
    pattern = parse_pattern("window:5+global:2")
    short = [t.detach() for t in random_heads(20, dtype=torch.float64)]
    alone = pattern_attention(*short, pattern=pattern, backend=backend)
    for side in ("right", "left"):
        before, after = (0, 6) if side == "right" else (6, 0)
        pad = torch.nn.functional.pad
        padded = [pad(t, (0, 0, before, after), value=torch.nan) for t in short]
        mask = pad(torch.ones(2, 20, dtype=torch.bool), (before, after))
        got = pattern_attention(*padded, pattern=pattern, attention_mask=mask, backend=backend)
        assert_equal(got[:, :, before : before + 20], alone)
        assert not got[:, :, ~mask[0]].any()


@pytest.mark.parametrize("kind", ["pairs", "pairs per head", "pairs additive", "padding bias"])
def test_a_general_mask_and_biases_are_for_the_dense_backend(kind: str) -> None:
    heads = random_heads(13, dtype=torch.float64)
    mask, _ = make_mask(kind, 2, 3, 13)
    assert mask is not None
    pattern = Window(4)
    got = pattern_attention(*heads, pattern=pattern, attention_mask=mask, scale=0.3)
    bias = mask if mask.is_floating_point() else torch.zeros(mask.shape).double()
    bias = bias.masked_fill(~mask if mask.dtype == torch.bool else mask.isneginf(), -1e9)
    valid = (bias > -1e8).any(-2, keepdim=True)
    pairs = oracle_pairs(pattern, Mask(valid), 3, 13) & (bias > -1e8)
    rows = (heads.query @ heads.key.mT * 0.3 + bias).masked_fill(~pairs, -1e9).softmax(-1)
    assert_equal(got, (rows * pairs.any(-1, keepdim=True)) @ heads.value)
    with pytest.raises(ValueError, match=r"^backend 'blocked' cannot run: it takes padding"):
        pattern_attention(*heads, pattern=pattern, attention_mask=mask, backend="blocked")


def test_an_explicit_choice_says_why_it_cannot_be() -> None:
    heads = random_heads(13, dtype=torch.float64)
    long = torch.zeros(1, 1, 2**15, 1)
    with pytest.raises(ValueError, match=r"^backend 'dense' cannot run: a mask of 32768×32768"):
        pattern_attention(long, long, long, pattern=Window(3), backend="dense")
    with pytest.raises(ValueError, match=r"^backend must be auto, dense, blocked, got 'fast'"):
        pattern_attention(*heads, pattern=Window(3), backend="fast")


@pytest.mark.parametrize(
    ("length", "spec", "mask", "line"),
    [
        (100, "window:5", None, "dense: 100 tokens are at most 256"),
        (300, "window:5", None, "blocked: blocks would read 40% of all pairs of 300 tokens"),
        (300, "window:299", None, "dense: blocks would read 100% of all pairs of 300 tokens"),
        (2000, "window:5", None, "blocked: 2000 tokens are more than 256"),
        (300, "window:5", "pairs", "dense: 'blocked' cannot run: it takes padding and causal"),
    ],
)
def test_auto_says_why(length: int, spec: str, mask: str | None, line: str) -> None:
    heads = torch.zeros(1, 2, length, 3)
    given = make_mask(mask, 1, 2, length)[0] if mask else None
    choice = explain_pattern(heads, heads, heads, pattern=parse_pattern(spec), attention_mask=given)
    assert str(choice).startswith(line)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pattern": "window:3"}, "pattern must be a Pattern, got str"),
        ({"dropout_p": 1.5}, "dropout_p must be at most 1, got 1.5"),
        ({"scale": float("nan")}, "scale must be a number, got nan"),
        ({"key": torch.zeros(2, 3, 9, 4)}, "key must be [2, 3, 8, 4] like query"),
        ({"query": torch.zeros(8, 4)}, "query must be [B, H, L, D], got [8, 4]"),
        ({"pattern": packed(9)}, "ids of documents must be [2, 8], got [2, 9]"),
        ({"pattern": packed(8, batch=3) & Window(2)}, "ids of documents must be [2, 8]"),
    ],
)
def test_what_does_not_fit_is_one_line(change: dict[str, Any], message: str) -> None:
    zeros = torch.zeros(2, 3, 8, 4)
    call = {"query": zeros, "key": zeros, "value": zeros, "pattern": Window(3)} | change
    with pytest.raises(ValueError) as error:
        pattern_attention(**call)
    assert str(error.value).startswith(message)


# Dynamo's own, where it goes on behind a break.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("backend", RUN)
def test_compiled_code_steps_out_and_goes_on(backend: str) -> None:
    heads = random_heads(300, dtype=torch.float64)

    def scaled(*tensors: Tensor) -> Tensor:
        return 2 * run(Heads(*(3 * t for t in tensors)), Window(20), Mask(), backend)

    got, want = torch.compile(scaled, backend="aot_eager")(*heads), scaled(*heads)
    assert_equal(got, want)
    assert_equal(gradients(got, heads), gradients(want, heads))
