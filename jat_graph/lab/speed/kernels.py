"""``kernels``: the two inner loops against attention, a compiler, the released code and SpMM.

Counting votes into a dense A is measured here, the product that never builds A in ``growth``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from jat_graph.checks.tensors import default_scale
from jat_graph.kernels import count_votes
from jat_graph.lab.speed.checks import require_equal
from jat_graph.lab.speed.growth import PRODUCT, product_series
from jat_graph.lab.speed.inputs import (
    NUM_HEADS,
    SDPA,
    THRESHOLD,
    Case,
    draw_heads,
    measure_work,
    median_product,
    number_of_keys,
    open_case,
)
from jat_graph.lab.speed.series import Bar, Benchmark, Outcome, Series, Settings
from jat_graph.voting.rule import VoteRule
from jat_graph.voting.scores import QueryKeyScores

COUNT = "count, all keys"
ADJACENCY = "A from Q and K, all keys"
FASTEST = "torch.compile, fastest formulation"
WRITTEN = "torch.compile, as written"
LONGEST = 1024  # beyond it, counting by the definition takes minutes
RELEASED = "the released code's formula"

Formula = Callable[[Tensor, Tensor, float], Tensor]

# One expression, the sum over keys of X_ij X_kj > ρ, as it may be put to the compiler. Scores come
# with the key last, columns with the key first. Inductor fuses each into one loop without L×L×L,
# and how fast that loop is depends on what is summed and along which dimension.
FORMULATIONS: Mapping[str, Formula] = {
    "keys last, sum of bools": lambda scores, columns, threshold: (
        scores[:, :, None, :] * scores[:, None, :, :] > threshold
    ).sum(-1),
    "keys last, sum of floats": lambda scores, columns, threshold: (
        (scores[:, :, None, :] * scores[:, None, :, :] > threshold).float().sum(-1)
    ),
    "keys first, sum of int32": lambda scores, columns, threshold: (
        columns[:, :, :, None] * columns[:, :, None, :] > threshold
    ).sum(1, dtype=torch.int32),
}
AS_WRITTEN = "keys last, sum of bools"


def counting_series() -> tuple[Series, ...]:
    """Counting against attention, a compiler and the released code."""
    fastest = partial(_against_compiled, names=tuple(FORMULATIONS))
    written = partial(_against_compiled, names=(AS_WRITTEN,))
    return (
        Series(COUNT, SDPA, (384, 512), LONGEST, _against_sdpa),
        Series(COUNT, FASTEST, (512,), LONGEST, fastest),
        Series(COUNT, WRITTEN, (512,), LONGEST, written),
        Series(ADJACENCY, RELEASED, (384,), 512, _against_released),
    )


def _against_sdpa(length: int, settings: Settings) -> Outcome:
    case = open_case(COUNT, length, settings)
    count, scores = _checked_count(case)
    require_equal(case.name, count(), case.counts(scores))
    return case.outcome(case.time([count], case.attend))


def _against_compiled(length: int, settings: Settings, names: tuple[str, ...]) -> Outcome:
    missing = missing_compiler(settings.torch_device)
    if missing:
        return Outcome(note=f"not measured: {missing}")
    case = open_case(COUNT, length, settings)
    count, scores = _checked_count(case)
    compiled = {name: _compiled_count(compile_formula(name), scores) for name in names}
    for name, run in compiled.items():
        require_equal(f"{case.name}, {name}", count(), run().to(scores.dtype))
    few = replace(settings, repeats=3)
    fastest = min(names, key=lambda name: few.time([compiled[name]], [compiled[name]]).ours.median)
    return case.outcome(case.time([count], compiled[fastest]), {"formulation": fastest})


def _checked_count(case: Case) -> tuple[Callable[[], Tensor], Tensor]:
    """Our count of all keys, and the scores that it counts on."""
    scores = case.heads.key_scores()
    return lambda: count_votes(*case.rule.settle(scores)), scores


def _compiled_count(formula: Formula, scores: Tensor) -> Callable[[], Tensor]:
    """A formula's count; scores in the layout that it wants are ready."""
    flat = scores.flatten(0, 1)
    columns = flat.transpose(1, 2).contiguous()
    return lambda: formula(flat, columns, THRESHOLD)[None]


def _against_released(length: int, settings: Settings) -> Outcome:
    """Time both ways from queries and keys to A, by the released code's rule and in float32."""
    heads = draw_heads(length, NUM_HEADS, device=settings.torch_device)
    source = QueryKeyScores(heads.query, heads.key, default_scale(heads.query.size(-1)))
    number = number_of_keys(length)
    few = torch.arange(number, device=heads.key.device) * length // number
    # That rule divides a product by the key's norm; these scores have such products.
    scores = (heads.key_scores() / source.key_norms(None).sqrt().unsqueeze(2))[..., few]
    threshold = float(median_product(scores).min())
    name = f"{ADJACENCY}, L={length}"
    case = Case(name, heads, measure_work(scores, threshold), settings)
    case.work.require(name)
    rule = VoteRule(torch.full_like(case.rule.threshold, threshold), inclusive=True)

    entered: list[tuple[Tensor, Tensor]] = []

    def score() -> None:
        entered[:] = [(source.columns(None), source.key_norms(None))]

    def count() -> Tensor:
        shares = count_votes(*rule.settle(*entered[0])) / length
        shares.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        return shares

    def theirs() -> Tensor:
        return _released_adjacency(heads.query, heads.key, threshold)

    score()
    require_equal(name, count(), theirs())
    timing = case.time([score, count], theirs)
    return case.outcome(timing, {"count_seconds": timing.steps[1].median})


def _released_adjacency(query: Tensor, key: Tensor, threshold: float) -> Tensor:
    """A by the formula of the released code, ``get_attn_adj`` of JAT2022: [B, H, L, L]."""
    scores = query @ key.mT
    normalizer = key.norm(dim=-1).clamp(min=1.0) * key.size(-1)  # [B, H, L]
    products = scores[:, :, :, None, :] * scores[:, :, None, :, :]
    votes = products / normalizer[:, :, None, None, :] >= threshold
    shares = votes.sum(dim=-1) / scores.new_tensor(scores.size(-1))
    shares.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    return shares


def compile_formula(name: str) -> Formula:  # [H, L, U], [H, U, L]
    """One of the formulations under ``torch.compile``."""
    compiled: Formula = torch.compile(FORMULATIONS[name], fullgraph=True, dynamic=False)
    return compiled


def missing_compiler(device: torch.device) -> str:
    """Say what ``torch.compile`` lacks here."""
    if device.type == "cuda":
        found = importlib.util.find_spec("triton") is not None
        return "" if found else "torch.compile needs triton, which is not installed"
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "torch.compile needs a C++ compiler, and there is none"
    return ""


KERNELS = Benchmark(
    name="kernels",
    claim=(
        "The two inner loops, forward, B = 1, 4 heads, D = 64: counting votes into a dense A, and "
        "the product of A with one block of features for U = ⌈5 ln L⌉ keys, nothing of size L×L "
        "stored. Scores are ready; the product's time is that of ranking the tokens and of "
        "multiplying."
    ),
    series=lambda settings: (*counting_series(), *product_series()),
    bars=(
        Bar("cpu", COUNT, SDPA, 512, 512, 5.0),
        Bar("cpu", COUNT, WRITTEN, 512, 512, 1 / 8),
        Bar("cpu", ADJACENCY, RELEASED, 384, 384, 1 / 300),
        Bar("cpu", PRODUCT, SDPA, 2048, 2048, 0.4),
        Bar("cpu", PRODUCT, SDPA, 8192, 8192, 0.18),
        Bar("cpu", PRODUCT, SDPA, 32768, 32768, 0.08),
    ),
)
