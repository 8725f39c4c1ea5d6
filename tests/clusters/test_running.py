"""Attention by clusters as it runs: precision, dropout, compiled code, memory, bad input."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from jat_graph import clustered_attention
from tests.clusters.support import leaves_of, run
from tests.inputs import random_padding_mask
from tests.jumps.kernels.support import threads
from tests.oracles import reference_tree_attention
from tests.support import assert_equal, assert_within_budget, random_tensors

SETTINGS: dict[str, Any] = {"keys": 4, "groups": 1, "size": 2, "segment": 8}
FAST = SETTINGS | {"dense_below": 0, "window": 2}
CAUSAL = {"is_causal": True}


def by_oracle(*heads: Tensor, is_causal: bool = False, **options: Any) -> Tensor:
    window = 2 if is_causal else 0
    return reference_tree_attention(*heads, causal=is_causal, window=window, **options)


# --- precision -----------------------------------------------------------------------------------


def assert_precise(
    ours: list[Tensor], heads: list[Tensor], largest_score: float = 4.0, **options: Any
) -> None:
    """Compare values and gradients with the plain formula at the precision of ``heads``.

    The truth is the formula in float64 on the same rounded numbers. Log-sum-exps of large scores
    are off by as many units in the last place, and the weights made of them by that share: SDPA's
    own gradients are.
    """
    options = SETTINGS | options
    truth = run(by_oracle, [x.detach().double() for x in heads], **options)
    plain = run(by_oracle, [x.detach().float() for x in heads], **options)
    for mine, low, true in zip(ours, plain, truth, strict=True):
        rounded = low.to(heads[0].dtype).to(mine.dtype)
        assert_within_budget(mine, rounded, true, ulps=largest_score)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("settings", [{}, {"margin": 1.0}, {"keys": 0}, CAUSAL])
def test_low_precision_stays_inside_the_budget(dtype, settings):
    heads = [x.to(dtype) for x in random_tensors(0, *((2, h, 91, 16) for h in (4, 2, 2)))]
    valid = random_padding_mask(2, 91, side="scattered", seed=1)
    options = {"attention_mask": valid, "enable_gqa": True} | FAST | settings
    ours = run(clustered_attention, heads, **options)
    assert ours[0].dtype == dtype
    assert_precise(ours, heads, sequence=valid.long() - 1, **settings)


def test_autocast_makes_one_precision_of_all():
    heads = [x.float() for x in random_tensors(0, *[(2, 2, 150, 16)] * 3)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = run(clustered_attention, heads, **FAST)
        mixed = clustered_attention(heads[0].bfloat16(), *heads[1:], **FAST)
    assert ours[0].dtype == mixed.dtype == torch.bfloat16
    assert [x.dtype for x in ours[1:]] == [torch.float32] * 3
    assert torch.equal(mixed, ours[0])
    low = run(clustered_attention, [x.bfloat16() for x in heads], **FAST)
    wanted = [low[0], *(x.float() for x in low[1:])]
    assert all(torch.equal(*pair) for pair in zip(ours, wanted, strict=True))


EXTREMES = {
    "scores of 200": lambda q, k, v: (8 * q, 8 * k, v),
    "equal queries": lambda q, k, v: (torch.full_like(q, 0.5), k, v),
    "a large key": lambda q, k, v: (q, k.index_fill(2, torch.tensor(40), 20.0), v),
    "a constant on keys": lambda q, k, v: (q, k + 100, v),
    "a large value": lambda q, k, v: (q, k, v.index_fill(2, torch.tensor(77), 1e6)),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_values(kind, dtype):
    heads = EXTREMES[kind](*random_tensors(2, *[(1, 2, 150, 8)] * 3, spread=1.0))
    largest = max(4.0, (heads[0] @ heads[1].mT * 8**-0.5).abs().max().item())
    assert kind != "scores of 200" or 200 < largest < 600
    heads = [x.to(dtype) for x in heads]
    ours = run(clustered_attention, heads, **FAST)
    if dtype == torch.float32:
        return assert_precise(ours, heads, largest)
    for mine, other in zip(ours, run(by_oracle, heads, **SETTINGS), strict=True):
        size = other.abs().max().clamp(min=1)
        assert_equal(mine / size, other / size)
    return None


@pytest.mark.parametrize("options", [FAST, SETTINGS])
@pytest.mark.parametrize("count", [0, 1])
def test_one_valid_token_reads_itself_and_none_reads_nothing(count, options):
    heads = random_tensors(3, *[(2, 2, 40, 8)] * 3)
    valid = torch.ones(2, 40, dtype=torch.bool)
    valid[1] = torch.arange(40) - 17 == 0 if count else False
    output, *gradients = run(clustered_attention, heads, attention_mask=valid, **options)
    if count:
        assert_equal(output[1, :, 17], heads[2][1, :, 17])
    assert all(x.isfinite().all() for x in (output, *gradients))
    assert not any(x[1, :, ~valid[1]].any() for x in gradients)
    if options is FAST:
        assert not output[1, :, ~valid[1]].any()


@pytest.mark.parametrize("options", [FAST, SETTINGS], ids=["clusters", "dense"])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_what_padding_holds_reaches_nobody(poison, options):
    heads = random_tensors(4, *[(2, 2, 70, 8)] * 3)
    valid = random_padding_mask(2, 70, side="scattered", seed=2)
    poisoned = [x.masked_fill(~valid[:, None, :, None], poison) for x in heads]
    shown = valid[:, None, :, None]
    results = [
        run(lambda *x: clustered_attention(*x, attention_mask=valid, **options) * shown, tensors)
        for tensors in (heads, poisoned)
    ]
    assert all(map(torch.equal, *results))


# --- dropout -------------------------------------------------------------------------------------


@pytest.fixture
def heads() -> list[Tensor]:
    return random_tensors(5, *[(2, 2, 60, 4)] * 3)


def dropped(*heads: Tensor, p: float = 0.3, seed: int | None = 0, **options: Any) -> Tensor:
    """Return the output with dropout, of a seed of its own."""
    if seed is not None:
        torch.manual_seed(seed)
    return clustered_attention(*heads, dropout_p=p, **FAST | options)


def test_dropout_of_nothing_and_of_everything(heads):
    nothing, plain = run(dropped, heads, p=0.0), run(clustered_attention, heads, **FAST)
    assert all(map(torch.equal, nothing, plain))
    assert not any(x.any() for x in run(dropped, heads, p=1.0))


EVERYWHERE = {"global_attention_mask": torch.arange(60).expand(2, -1) % 13 == 1}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"segment": 16}, {"dense_below": 99}, EVERYWHERE, CAUSAL])
def test_the_mean_over_many_draws_is_the_output(heads, options):
    torch.manual_seed(0)
    draws = torch.stack([dropped(*heads, seed=None, **options) for _ in range(200)])
    assert len(draws[:, 0, 0, -1, 0].unique()) > 130
    assert not torch.equal(draws[:, 0, 0], draws[:, 0, 1])
    away = (draws.mean(0) - clustered_attention(*heads, **FAST | options)).abs()
    assert (away / (draws.std(0) / math.sqrt(200))).max() < 5  # standard errors, of 960 numbers


@pytest.mark.parametrize("options", [{}, {"propagate": False}, {"dense_below": 99}])
def test_gradients_under_dropout(options):
    heads = [x.requires_grad_() for x in random_tensors(6, *((1, h, 30, 3) for h in (2, 1, 1)))]
    valid, everywhere = random_padding_mask(1, 30), torch.arange(30)[None] % 11 == 1
    settings = {"attention_mask": valid, "enable_gqa": True} | options
    for p, more in (
        (0.0, {}),
        (0.3, {}),
        (0.3, CAUSAL),
        (0.3, {"global_attention_mask": everywhere}),
    ):
        attend = partial(dropped, p=p, **settings | more)
        torch.autograd.gradcheck(attend, heads, fast_mode=True)


def test_dropout_draws_the_same_on_other_numbers_of_threads(heads):
    results = []
    for forward, backward in ((1, 1), (1, 2), (2, 1)):
        leaves = leaves_of(heads)
        with threads(forward):
            output = dropped(*leaves)
        with threads(backward):
            output.square().sum().backward()
        results.append([output, *(x.grad for x in leaves)])
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=1e-10, rtol=0)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_draws_the_same_again(heads, reentrant):
    def again(*x):
        torch.manual_seed(0)
        return checkpoint(lambda *y: dropped(*y, seed=None), *x, use_reentrant=reentrant)

    results = []
    for function in (dropped, again):
        leaves = leaves_of(heads)
        output = function(*leaves)
        output.square().sum().backward()  # which reentrant code asks for
        results.append([output, *(x.grad for x in leaves)])
    assert all(map(torch.equal, *results))


# --- compiled code -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True])
def test_compiled_code_is_few_graphs_for_all_lengths_and_batches(padded):
    counter = CompileCounterWithBackend("aot_eager")
    options = {"keys": 2, "size": 2, "segment": 4, "dense_below": 10}  # lengths on both sides
    torch._dynamo.reset()

    def attend(*x, valid):
        return clustered_attention(*x, attention_mask=valid, **options)

    compiled = torch.compile(attend, backend=counter, fullgraph=True)
    for batch in (2, 1, 3):
        for length in (5, 9, 10, 11, 16):
            heads = random_tensors(length, *[(batch, 2, length, 4)] * 3)
            valid = random_padding_mask(batch, length, seed=length) if padded else None
            ours, theirs = (run(f, heads, valid=valid) for f in (compiled, attend))
            assert all(map(torch.equal, ours, theirs))
    assert counter.frame_count <= 8


@pytest.mark.parametrize(
    ("engine", "options"),
    [("aot_eager", CAUSAL), pytest.param("inductor", {}, marks=pytest.mark.slow)],
)
def test_compiled_code_of_changing_shapes_with_everything(engine, options):
    torch._dynamo.reset()

    def attend(*x, mask):
        return clustered_attention(*x, attention_mask=mask, enable_gqa=True, **FAST | options)

    compiled = torch.compile(attend, backend=engine, fullgraph=True, dynamic=True)
    for length in (40, 57):
        heads = random_tensors(length, *((2, h, length, 4) for h in (4, 2, 2)))
        documents = torch.arange(length) // 19
        mask = (documents[:, None] == documents)[None, None]
        assert all(map(torch.equal, run(compiled, heads, mask=mask), run(attend, heads, mask=mask)))


@pytest.mark.slow
@pytest.mark.parametrize(("form", "shortest"), [(0, 0), (1, 99), (2, 0)])
def test_compiled_code_takes_additive_padding_and_refuses_biases(form, shortest):
    torch._dynamo.reset()
    valid, options = random_padding_mask(2, 30, seed=3), SETTINGS | {"dense_below": shortest}
    row = valid[:, None, None]
    allowed = (valid, row, row & row.mT)[form]
    mask = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    heads = random_tensors(3, *[(2, 2, 30, 4)] * 3)
    compiled = torch.compile(clustered_attention, backend="aot_eager", fullgraph=True)
    ours, theirs = (
        f(*heads, attention_mask=mask, **options) for f in (compiled, clustered_attention)
    )
    assert_equal(ours * row.mT, theirs * row.mT)
    if shortest == 0:
        with pytest.raises(ValueError, match="must be padding or documents, got biases"):
            compiled(*heads, attention_mask=mask.masked_fill(mask == 0, 0.5), **options)


def test_an_exported_program_takes_any_length():
    class Attention(torch.nn.Module):
        def forward(self, query: Tensor, key: Tensor, value: Tensor, valid: Tensor) -> Tensor:
            return clustered_attention(query, key, value, attention_mask=valid, **FAST)

    heads = random_tensors(7, *[(2, 2, 40, 4)] * 3)
    length = torch.export.Dim("length", min=20, max=4096)
    shapes = [{2: length}] * 3 + [{1: length}]
    example = (*heads, random_padding_mask(2, 40))
    program = torch.export.export(Attention(), example, dynamic_shapes=tuple(shapes)).module()
    for size in (20, 40, 99):
        others = random_tensors(size, *[(2, 2, size, 4)] * 3)
        valid = random_padding_mask(2, size, side="left")
        assert torch.equal(program(*others, valid), Attention()(*others, valid))


@pytest.mark.slow
def test_the_operators_keep_torchs_rules():
    operators = torch.ops.jat_graph
    for dtype in (torch.float32, torch.bfloat16):
        heads = [x.to(dtype) for x in random_tensors(8, *((2, h, 30, 4) for h in (4, 2, 2)))]
        documents = torch.arange(30).expand(2, -1).int() // 20 - 1
        for own, seed in ((None, None), (documents, torch.tensor(3))):
            everywhere = None if own is None else own.roll(5, -1) == 0
            for causal in (0.0, 1.0):
                rule = [4.0, 1.0, 2.0, 4.0, 2 * causal, 0.0, 1.0, 2.0, causal]
                settings = (own, None if causal else everywhere, seed, 0.5, 0.2, rule)
                torch.library.opcheck(operators.read_tree, (*leaves_of(heads), *settings))
                results = operators.read_tree(*heads, *settings)
                given = (torch.ones_like(results[0]), *heads, *results, *settings)
                torch.library.opcheck(operators.read_tree_backward, given)
    mask = documents[:, :, None] == documents[:, None]
    torch.library.opcheck(operators.packed_documents, (mask, False))
    torch.library.opcheck(operators.without_biases, (documents, torch.zeros(2, 1, 1, 30)))


# --- short sequences -----------------------------------------------------------------------------


def test_a_short_sequence_is_the_same_by_sdpa_whether_it_is_trained_or_not():
    for length in (4095, 4096):
        heads = [torch.randn(1, 1, length, 4) for _ in range(3)]
        output = clustered_attention(*heads)
        plain = torch.nn.functional.scaled_dot_product_attention(*heads)
        assert torch.equal(output, plain) == (length < 4096)
        assert torch.equal(output, clustered_attention(*leaves_of(heads)))


# --- memory --------------------------------------------------------------------------------------


def largest_tensor(length: int) -> int:
    """Return the bytes of the largest tensor of a forward and a backward pass."""
    tensors = leaves_of([torch.randn(1, 2, length, 8) for _ in range(3)])
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        output = clustered_attention(*tensors, keys=16, segment=64, dense_below=0)
        output.sum().backward()
    assert all(x.grad.any() for x in tensors)
    return max(event.self_cpu_memory_usage for event in profiler.events())


@pytest.mark.slow
def test_nothing_l_by_l_is_stored():
    sizes = [largest_tensor(length) for length in (1024, 2048)]
    assert sizes[0] > 2 * 1024 * 8 * 4  # more than the output: it sees what operators allocate
    assert sizes[1] < 2.2 * sizes[0]
    assert sizes[1] < 2 * 2048**2 * 4 / 8


# --- bad input -----------------------------------------------------------------------------------

GOOD = {name: torch.randn(2, 4, 6, 8) for name in ("query", "key", "value")}
GROUPED = {name: torch.randn(2, 3, 6, 8) for name in ("key", "value")}
TRIANGLE = torch.ones(1, 1, 6, 6).tril()
BLOCKS = torch.block_diag(*[torch.ones(3, 3)] * 2)[None, None].bool()
BAND = TRIANGLE.triu(-2).bool()
ONES = torch.ones(2, 6).bool()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"query": [1.0]}, "query must be a tensor, got list"),
        ({"query": torch.randn(4, 6, 8)}, r"query must be \[B, H, L, D\], got \[4, 6, 8\]"),
        ({name: GOOD[name][:, :, :0] for name in GOOD}, "query must have no empty axis"),
        ({"query": GOOD["query"].long()}, "must be floating point of 16 bits or more, got tor"),
        ({"key": torch.randn(2, 4, 5, 8)}, r"key must be \[2, 4, 6, 8\] like query"),
        ({"key": GOOD["key"].double()}, "key must be torch.float32 like query"),
        ({"key": GOOD["key"] / 0}, "key must be finite .* sequence 0, head 0, token 0"),
        ({"value": torch.randn(2, 4, 5, 8)}, r"value must be \[2, 4, 6, Dv\]"),
        ({"value": GOOD["value"].half()}, "value must be torch.float32 like query"),
        ({"value": GOOD["value"] / 0}, "value must be finite in valid tokens"),
        (GROUPED, r"key must be \[2, 4, 6, 8\] like query, got \[2, 3, 6, 8\]"),
        (GROUPED | {"enable_gqa": True}, "query must have a multiple of 3 heads"),
        ({"key": GOOD["key"][:, :2], "enable_gqa": True}, r"value must be \[2, 2, 6, Dv\]"),
        ({"enable_gqa": 1}, "enable_gqa must be True or False, got 1"),
        ({"attention_mask": "left"}, "attention_mask must be a tensor, got str"),
        ({"attention_mask": torch.ones(2, 5).bool()}, "attention_mask must be"),
        ({"attention_mask": torch.ones(2, 6).long()}, "attention_mask must be bool or additive"),
        ({"attention_mask": torch.full((2, 6), math.nan)}, "attention_mask must hold finite"),
        ({"attention_mask": torch.randn(2, 6)}, "attention_mask must be padding .* got biases"),
        ({"attention_mask": TRIANGLE.bool().flip(-1)}, "got another rule"),
        ({"attention_mask": torch.ones(2, 4, 1, 6).bool()}, "attention_mask must be the same"),
        ({"attention_mask": BLOCKS.expand(2, 4, -1, -1)}, "got one for each"),
        ({"attention_mask": BLOCKS.tril()}, "got another rule"),
        ({"attention_mask": BLOCKS | BLOCKS.roll(1, -1)}, "got another rule"),
        ({"attention_mask": BLOCKS & ~torch.eye(6).bool()}, "got another rule"),
        ({"dropout_p": 1.5}, "dropout_p must be at most 1, got 1.5"),
        ({"dropout_p": "half"}, "dropout_p must be a number, got 'half'"),
        ({"scale": math.nan}, "scale must be a number, got nan"),
        ({"size": -8}, "size must be at least 1, got -8"),
        ({"keys": ((1, 2),)}, "keys .*1 entries.* got 2"),
        ({"clusters": 8}, "unknown field 'clusters' of ClusterGraph, wanted one of keys"),
        ({"size": 3, "segment": 8}, "segment must be size, 3, times a power of two, as 96, got 8"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"is_causal": 1}, "is_causal must be True or False, got 1"),
        (CAUSAL | {"global_attention_mask": ONES}, "None in causal order, got a mask"),
        (CAUSAL | {"attention_mask": BAND}, "got another rule"),
    ],
)
def test_bad_input_gives_one_clear_line(change, words):
    arguments = {**GOOD, **change}
    tensors = [arguments.pop(name) for name in GOOD]
    for options in ({}, {"dense_below": 0} | SETTINGS):
        with pytest.raises(ValueError, match=words) as caught:
            clustered_attention(*tensors, **options | arguments)
        assert "\n" not in str(caught.value)
