"""What is to be known on the day a GPU is there: errors of each kernel, and times against flash."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from examples.benchmarks import measure, roofline
from examples.benchmarks.measure import Heads, Outcome, Settings
from jat_graph import ClusterGraph, clustered_attention
from jat_graph.clusters import naive
from jat_graph.clusters.attend import State, kernel_for, read_next
from jat_graph.clusters.choice import Nodes, as_read, empty_choice, grow_for

RULE = ClusterGraph(dense_below=0).rule(causal=True)
OURS = partial(clustered_attention, is_causal=True, enable_gqa=True, dense_below=0)
THEIRS = partial(F.scaled_dot_product_attention, is_causal=True, enable_gqa=True)
ROWS = 64  # last tokens that are compared with the formula
MOST = 4.0  # how many times SDPA's error ours may be


def draw(length: int, settings: Settings, heads: int, kv_heads: int, dim: int) -> Heads:
    """Gaussian heads in causal order, peaked as those of pretrained models are."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, number, length, dim) for number in (heads, kv_heads, kv_heads)]
    drawn = [torch.randn(shape, generator=generator) for shape in shapes]
    drawn[0] *= 2
    return Heads(*(x.to(settings.device, settings.dtype) for x in drawn))


def errors(length: int, settings: Settings, dim: int, dtype: str) -> Outcome:
    """The largest error of what a prompt reads and of its gradients, beside that of SDPA.

    Errors are root mean squares, in fractions of those of the formula in float64, which reads along
    the same choice; ``alike`` is the share of tokens that choose as the formula does.
    """
    settings = settings._replace(dtype=getattr(torch, dtype))
    heads = draw(length, settings, 4, 2, dim)
    query, key, value = (as_read(x[0]) for x in heads)
    asked = query * dim**-0.5
    kernel = kernel_for(key.device)
    tree = grow_for(RULE, key)
    nodes = Nodes.of(tree, key, value, RULE)
    choice, wanted = (empty_choice(asked, length, tree, RULE) for _ in range(2))
    kernel.choose(asked, key, choice, nodes)
    wanted.read.fill_(-1)
    wanted.opened.fill_(-1)
    exact = [x.double() for x in (asked, key, value)]
    means = Nodes(*([x.double() for x in part] for part in nodes[:3]))
    naive.choose(*exact[:2], wanted, means)
    found = kernel.read(asked, key, value, choice, nodes)
    right = naive.read(*exact, choice, means)
    given = torch.ones_like(found[0]), *found, asked, key, value
    doubles = torch.ones_like(right[0]), *right, *exact
    ours = [found[0], *kernel.differentiate(*given, choice, nodes)[:3]]
    names = "output", "by_query", "by_key", "by_value"
    off = map(_error, ours, [right[0], *naive.differentiate(*doubles, choice, means)[:3]])
    facts = dict(zip(names, off, strict=True))
    sides = (measure.run(THEIRS, [x.to(y) for x in heads]) for y in (settings.dtype, torch.float64))
    theirs = max(map(_error, *sides))  # type: ignore[arg-type]
    alike = float((choice.read == wanted.read).all(-1).float().mean())
    worst = max(facts.values())
    if worst > MOST * theirs + torch.finfo(torch.float32).eps:
        raise AssertionError(f"errors must be at most {MOST} times {theirs:.2g}, got {facts}")
    return measure.outcome([worst], [theirs], alike=alike, **facts)


def _error(found: Tensor, right: Tensor) -> float:
    found, right = (x.detach().double() for x in (found, right))
    return float(((found - right).square().mean() / right.square().mean()).sqrt())


def layer(length: int, settings: Settings, training: bool = False) -> Outcome:
    """One layer of a Llama of 8 billion parameters, building of trees included, against flash."""
    heads = draw(length, settings, roofline.HEADS, roofline.KV_HEADS, roofline.DIM)
    last, _ = _last(heads, ROWS)
    measure.agree(OURS(*heads)[0, :, -ROWS:], last)
    sides = (partial(measure.run, side, heads, training) for side in (OURS, THEIRS))
    facts = {} if training else _expected(settings, partial(roofline.prompt, length))
    return measure.in_turns(*sides, settings, heavy=True, **facts)


@torch.inference_mode()
def token(length: int, settings: Settings) -> Outcome:
    """A new token of this layer, whose tree is there, against flash."""
    heads = draw(length, settings, roofline.HEADS, roofline.KV_HEADS, roofline.DIM)
    query, key, value = (x[0] for x in heads)
    _, state = _last(heads, 1)
    ours = partial(read_next, query[:, -1:], key, value, RULE, roofline.DIM**-0.5, state)
    theirs = partial(
        F.scaled_dot_product_attention, heads.query[:, :, -1:], *heads[1:], enable_gqa=True
    )
    facts = _expected(settings, partial(roofline.new_token, length))
    return measure.in_turns(ours, theirs, settings, **facts)


@torch.inference_mode()
def _last(heads: Heads, number: int) -> tuple[Tensor, State]:
    """Return what the last tokens read, which must be the formula's, and what stays behind."""
    query, key, value = (x[0] for x in heads)
    query = query[:, -number:]
    scale = roofline.DIM**-0.5
    output, state = read_next(query, key, value, RULE, scale)
    asked = as_read(query) * scale
    empty = empty_choice(asked, key.size(1), state.tree, RULE)
    choice = kernel_for(key.device).choose(asked, as_read(key), empty, state.nodes)
    means = Nodes(*([x.double() for x in part] for part in state.nodes[:3]))
    right, _ = naive.read(asked.double(), key.double(), value.double(), choice, means)
    measure.agree(output, right)
    return output, state


def _expected(settings: Settings, cost: Callable[..., tuple[float, float]]) -> dict[str, Any]:
    """Return the ratio that was counted for a chip, if it is this one."""
    name = torch.cuda.get_device_name() if settings.device == "cuda" else ""
    for chip, own in roofline.CHIPS.items():
        if chip in name:
            dense, ours = cost(own, RULE)
            return {"expected": round(ours / dense, 3)}
    return {}
