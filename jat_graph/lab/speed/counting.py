"""Counting votes into a dense A, against attention, a compiler and the released code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from jat_graph.checks.tensors import default_scale
from jat_graph.kernels import count_votes
from jat_graph.lab.speed.case import NUM_HEADS, SDPA, Case, open_case
from jat_graph.lab.speed.checks import require_equal
from jat_graph.lab.speed.formulas import (
    AS_WRITTEN,
    FORMULATIONS,
    Formula,
    compile_formula,
    missing_compiler,
)
from jat_graph.lab.speed.inputs import (
    THRESHOLD,
    measure_work,
    median_product,
    number_of_keys,
    random_heads,
)
from jat_graph.lab.speed.series import Outcome, Series, Settings
from jat_graph.lab.speed.timing import time_in_turns
from jat_graph.reference import released_adjacency
from jat_graph.voting.rule import VoteRule
from jat_graph.voting.scores import QueryKeyScores

COUNT = "count, all keys"
ADJACENCY = "A from Q and K, all keys"
FASTEST = "torch.compile, fastest formulation"
WRITTEN = "torch.compile, as written"
LONGEST = 1024  # beyond it, counting by the definition takes minutes
RELEASED = "the released code's formula"


def counting_series() -> tuple[Series, ...]:
    """Return the comparisons."""
    fastest = partial(_against_compiled, names=tuple(FORMULATIONS))
    written = partial(_against_compiled, names=(AS_WRITTEN,))
    return (
        Series(COUNT, SDPA, (384, 512), LONGEST, _against_sdpa),
        Series(COUNT, FASTEST, (512,), LONGEST, fastest),
        Series(COUNT, WRITTEN, (512,), LONGEST, written),
        Series(ADJACENCY, RELEASED, (384,), 512, _against_released),
    )


def count_by_definition(rule: VoteRule, scores: Tensor) -> Tensor:  # [B, H, L, U], [B, H, L, L]
    """Count the votes for every pair, one key at a time."""
    threshold = rule.threshold[..., None, None]
    counts = scores.new_zeros(*scores.shape[:3], scores.size(2))
    for column in scores.unbind(-1):
        counts += rule.votes(column[..., :, None], column[..., None, :], None, threshold)
    return counts


def _against_sdpa(length: int, settings: Settings) -> Outcome:
    case = open_case(COUNT, length, settings)
    count, scores = _checked_count(case)
    require_equal(case.name, count(), count_by_definition(case.rule, scores))
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
    fastest = min(compiled.values(), key=lambda run: _median_seconds(run, settings))
    facts = {"formulation": next(name for name, run in compiled.items() if run is fastest)}
    return case.outcome(case.time([count], fastest), {**facts})


def _checked_count(case: Case) -> tuple[Callable[[], Tensor], Tensor]:
    """Return our count of all keys, and the scores that it counts on."""
    scores = case.heads.key_scores()
    return lambda: count_votes(*case.rule.settle(scores)), scores


def _compiled_count(formula: Formula, scores: Tensor) -> Callable[[], Tensor]:
    """Return a formula's count; scores in the layout that it wants are ready."""
    flat = scores.flatten(0, 1)
    columns = flat.transpose(1, 2).contiguous()
    return lambda: formula(flat, columns, THRESHOLD)[None]


def _median_seconds(run: Callable[[], object], settings: Settings) -> float:
    return time_in_turns([run], [run], device=settings.torch_device, repeats=3).ours.median


def _against_released(length: int, settings: Settings) -> Outcome:
    """Time both ways from queries and keys to A, by the released code's rule and in float32."""
    heads = random_heads(length, NUM_HEADS, device=settings.torch_device)
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
        return released_adjacency(heads.query, heads.key, threshold=threshold)

    score()
    require_equal(name, count(), theirs())
    timing = case.time([score, count], theirs)
    return case.outcome(timing, {"count_seconds": timing.steps[1].median})
