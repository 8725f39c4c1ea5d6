"""``heads``: one jump head against one ordinary head, forward and backward."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.attention.api import jump_attention
from jat_graph.attention.heads import JumpHeads
from jat_graph.attention.propagation import graph_operator, head_groups
from jat_graph.checks.tensors import default_scale
from jat_graph.config import JatConfig
from jat_graph.lab.speed.checks import count_rows, require_close, require_product, sampled_tokens
from jat_graph.lab.speed.inputs import (
    NUM_HEADS,
    THRESHOLD,
    Heads,
    Work,
    draw_heads,
    measure_work,
    number_of_keys,
)
from jat_graph.lab.speed.series import Bar, Benchmark, Fact, Outcome, Series, Settings
from jat_graph.masks.tokens import TokenMask
from jat_graph.operators import NormalizedOperator
from jat_graph.voting.ballot import Ballot

PROPAGATION = f"propagation alone, JAT†, strided, {NUM_HEADS} heads"
ORDINARY = "one ordinary head (SDPA)"
SELECTIONS = {
    "JAT, all keys": "all",
    "JAT†, significance": "significance",
    "JAT†, strided": "strided",
}
ALL_KEYS_LENGTH = 4096  # beyond it, L³ votes are nothing that one would run
LONGEST = 65536
ONE_MILLION = 2**20
PATIENCE = 1800.0  # seconds


def head_series(settings: Settings) -> tuple[Series, ...]:
    """Each kind of jump head over the lengths, and propagation alone."""
    lengths = tuple(2**exponent for exponent in range(7, 17))
    found = []
    for what, selection in SELECTIONS.items():
        longest = ALL_KEYS_LENGTH if selection == "all" else LONGEST
        chosen = tuple(length for length in lengths if length <= longest)
        largest = longest if selection == "all" else ONE_MILLION
        measure = partial(_head_against_ordinary, what=what)
        found.append(Series(what, ORDINARY, chosen, largest, measure))
    longest = ONE_MILLION if settings.device == "cuda" else 8192
    return (
        *found,
        Series(
            PROPAGATION,
            "exact attention of those heads",
            (longest,),
            ONE_MILLION,
            _propagation_against_attention,
        ),
    )


HEADS = Benchmark(
    name="heads",
    claim=(
        "One jump head against one ordinary head, forward and backward, B = 1, D = 64. Our side "
        "is `jump_attention`: scores, choice of keys, graph, propagation and exact attention."
    ),
    series=head_series,
    patience=PATIENCE,
    bars=(Bar("cuda", PROPAGATION, "", ONE_MILLION, ONE_MILLION, 0.1),),
)


def _head_against_ordinary(length: int, settings: Settings, what: str) -> Outcome:
    heads = draw_heads(length, 1, device=settings.torch_device, dtype=settings.dtype)
    config = _config(SELECTIONS[what], 1)
    name = f"{what}, L={length}"
    facts = check_head(name, heads, config)
    timing = settings.time(
        [lambda: backward(jump_attention(*leaves(heads), config=config))],
        [lambda: backward(F.scaled_dot_product_attention(*leaves(heads)))],
    )
    return Outcome.of(timing, facts)


def _propagation_against_attention(length: int, settings: Settings) -> Outcome:
    """Time the two parts of jump heads apart: what the graph costs, and what attention costs."""
    heads = draw_heads(length, NUM_HEADS, device=settings.torch_device, dtype=settings.dtype)
    config = _config("strided", NUM_HEADS)
    name = f"propagation alone, L={length}"
    if settings.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    backward(jump_attention(*leaves(heads), config=config))
    peak = torch.cuda.max_memory_allocated() if settings.device == "cuda" else 0
    facts = check_head(name, heads, config) | ({"peak_bytes": peak} if peak else {})
    query, key = _propagate(heads.query, heads.key, config)
    propagated = Heads(query, key, heads.value)
    timing = settings.time(
        [lambda: backward(*_propagate(*leaves(heads)[:2], config))],
        [lambda: backward(F.scaled_dot_product_attention(*leaves(propagated)))],
    )
    return Outcome.of(timing, facts)


def check_head(what: str, heads: Heads, config: JatConfig) -> dict[str, Fact]:
    """Refuse to go on unless jump heads are right for some sampled tokens, backward too.

    A x, its gradient and the attention of those tokens are computed by the definition. What the
    graphs have to do is printed at the end.
    """
    scale = default_scale(heads.query.size(-1))
    jumping = JumpHeads.everyone(config, heads.query.size(1))
    operator, ballot = graph_operator(heads.query, heads.key, jumping, TokenMask(), scale)
    assert isinstance(operator, NormalizedOperator)
    work = _work(heads, config, ballot)
    work.require(what)
    rows = sampled_tokens(heads.length, heads.query.device)
    counts = count_rows(ballot.rule, ballot.key_scores()[0], rows)
    counts[:, :, torch.arange(len(rows)), rows] = 0.0  # no self-loops
    weights = counts / ballot.voters()
    x = heads.value.detach().float().requires_grad_()
    product = operator.base.matmul(x)
    (grad,) = torch.autograd.grad(product, x, heads.key.float())
    require_product(f"{what}, A x", product.detach(), rows, weights, x.detach())
    require_product(f"{what}, gradient of A x", grad, rows, weights, heads.key.float())
    _check_attention(what, heads, config, operator, rows)
    work.announce(what)
    backend = type(operator.base).__name__.removesuffix("Operator").lower()
    return {**work.facts, "backend": backend}


def _check_attention(
    what: str, heads: Heads, config: JatConfig, operator: NormalizedOperator, rows: Tensor
) -> None:
    """Refuse to go on unless the output is attention on propagated queries and keys."""
    query, key = operator.matmul(heads.query), operator.matmul(heads.key)
    got = jump_attention(heads.query, heads.key, heads.value, config=config)
    plain = F.scaled_dot_product_attention(query, key, heads.value)
    exact = query[:, :, rows].double() @ key.double().transpose(-1, -2)
    probabilities = (exact * default_scale(query.size(-1))).softmax(-1)
    truth = probabilities @ heads.value.double()
    require_close(what, got[:, :, rows], plain[:, :, rows], truth)


def leaves(heads: Heads) -> tuple[Tensor, Tensor, Tensor]:  # [1, H, L, D]
    """Queries, keys and values as leaves that want a gradient."""
    query, key, value = (
        tensor.detach().requires_grad_() for tensor in (heads.query, heads.key, heads.value)
    )
    return query, key, value


def backward(*outputs: Tensor) -> None:
    """Run the backward pass from gradients of ones."""
    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])


def _work(heads: Heads, config: JatConfig, ballot: Ballot) -> Work:
    """Measure the work of the voting keys, or of U evenly spaced ones where all vote."""
    if config.graph.key_selection == "all":
        return measure_work(heads.key_scores(number_of_keys(heads.length)), THRESHOLD)
    return measure_work(ballot.key_scores()[0], THRESHOLD)


def _propagate(query: Tensor, key: Tensor, config: JatConfig) -> tuple[Tensor, Tensor]:
    jumping, scale = JumpHeads.everyone(config, query.size(1)), default_scale(query.size(-1))
    (group,) = head_groups(query, key, key, jumping, mask=TokenMask(), scale=scale)
    return group.query, group.key


def _config(selection: str, heads: int) -> JatConfig:
    return JatConfig.paper(threshold=THRESHOLD, heads=heads, key_selection=selection)
