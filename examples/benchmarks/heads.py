"""Jump heads alone: their time and memory, along pairs and along stones."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from examples.benchmarks import measure
from examples.benchmarks.measure import HEADS, Heads, Outcome, Settings, Step, agree, draw_heads
from jat_graph import JatConfig, jump_attention, jump_operator

SELF_WEIGHT = 0.1  # of stones


def pairs(selection: str, backend: str = "auto") -> JatConfig:
    """The paper's vote by some keys."""
    return JatConfig.paper(threshold=measure.THRESHOLD, key_selection=selection, backend=backend)


def stones(length: int, pattern: str | None = None) -> JatConfig:
    """U = ⌈5 ln L⌉ stones that suit causal order, too; everything goes as far as they lead."""
    options = {"key_selection": "strided", "key_step": -(-length // measure.number_of_keys(length))}
    return JatConfig.stones(strength=1.0, self_weight=SELF_WEIGHT, pattern=pattern, **options)


def ordinary(heads: Heads) -> Step:
    """Ordinary heads, forward and backward."""
    return partial(measure.run, F.scaled_dot_product_attention, heads)


def jumping(heads: Heads, config: JatConfig, is_causal: bool = False) -> Step:
    """Jump heads, forward and backward."""
    return partial(measure.run, partial(jump_attention, config=config, is_causal=is_causal), heads)


def propagating(heads: Heads, config: JatConfig, is_causal: bool = False) -> Step:
    """The propagation of queries and keys alone, forward and backward."""

    def propagate(query: Tensor, key: Tensor) -> Tensor:
        operator = jump_operator(query, key, config=config, is_causal=is_causal)
        return operator.matmul(torch.cat([query, key], dim=-1))

    return partial(measure.run, propagate, heads[:2])


def check(heads: Heads, selection: str) -> tuple[Heads, dict[str, object]]:
    """Refuse heads that do not attend on propagated features; give these, and facts."""
    config = pairs(selection)
    operator, choice = jump_operator(*heads[:2], config=config, explain=True)
    far = Heads(operator.matmul(heads.query), operator.matmul(heads.key), heads.value)
    agree(jump_attention(*heads, config=config), F.scaled_dot_product_attention(*far))
    if heads.query.size(2) <= 2048:  # by another backend, too
        dense = jump_operator(*heads[:2], config=pairs(selection, "dense"))
        agree(far.query, dense.matmul(heads.query))
    return far, {**measure.require_work(heads), "backend": choice.backend}


def one_head(length: int, settings: Settings, selection: str) -> Outcome:
    """One jump head against an ordinary one."""
    heads = draw_heads(length, 1, settings)
    _, facts = check(heads, selection)
    return measure.in_turns(jumping(heads, pairs(selection)), ordinary(heads), settings, **facts)


def propagation(length: int, settings: Settings) -> Outcome:
    """The two parts of jump heads: what the graph costs, and what attention costs."""
    heads = draw_heads(length, HEADS, settings)
    far, facts = check(heads, "strided")
    if settings.device == "cuda":
        facts["peak_bytes"] = measure.peak(build_layer, "strided", length, settings, device="cuda")
    ours = propagating(heads, pairs("strided"))
    return measure.in_turns(ours, ordinary(far), settings, **facts)


def build_layer(kind: str, length: int, settings: Settings) -> Step:
    """A layer of some heads with its kernels compiled and its pools full."""

    def build(length: int) -> Step:
        heads = draw_heads(length, HEADS, settings)
        if kind == "ordinary":
            return ordinary(heads)
        if kind == "stones":  # its softmax sees so little that propagation takes all the memory
            return jumping(heads, stones(length, "window:16"), is_causal=True)
        return jumping(heads, pairs(kind))

    for warm_up in (64, 1024):
        build(warm_up)()
    return build(length)


def layer_memory(length: int, settings: Settings) -> Outcome:
    """The peak of a layer against that of ordinary heads, and against what it reads."""
    _, facts = check(draw_heads(length, HEADS, settings), "significance")
    ours, theirs = (
        measure.peak(build_layer, kind, length, settings, device=settings.device)
        for kind in ("significance", "ordinary")
    )
    features = 2 * measure.DIM * settings.dtype.itemsize
    own = HEADS * length * (features + 4 * measure.number_of_keys(length))
    facts |= {"extra_bytes": float(ours - theirs), "multiple": (ours - theirs) / own}
    return measure.outcome([ours], [theirs], **facts)


def walk(length: int, settings: Settings, ours: str, theirs: str) -> Outcome:
    """A way of propagation, or its matrix products alone, against another one."""
    heads, config, causal = draw_heads(length, HEADS, settings), stones(length), ours == "causal"
    operator = jump_operator(*heads[:2], config=config, is_causal=causal)
    links, x = operator.links.float(), heads.value.float()
    # The last token walks over all that there is, in causal order, too.
    means = (links.mT @ x) / links.sum(2).clamp(min=1e-9).unsqueeze(-1)  # [1, H, U, D]
    last, total = links[:, :, -1:], links[:, :, -1:].sum(-1, keepdim=True) + SELF_WEIGHT
    wanted = (last @ means + SELF_WEIGHT * x[:, :, -1:]) / total
    agree(operator.matmul(x)[:, :, -1:], wanted)
    facts = {"linked": float((links > 0).float().mean()), "stones": links.size(-1)}
    if theirs == "pairs":
        facts["joined"] = measure.require_work(heads)["joined"]
    sides = {
        "stones": propagating(heads, config),
        "causal": propagating(heads, config, is_causal=True),
        "pairs": propagating(heads, pairs("strided")),
        "products": partial(_products, heads, links[0]),
    }
    return measure.in_turns(sides[ours], sides[theirs], settings, **facts)


def _products(heads: Heads, links: Tensor) -> None:
    """Take the matrix products that no other way of writing a walk could leave out."""
    query, key = heads.query[0].float(), heads.key[0].float()
    scores = links[..., : links.size(-1) // 2]  # as many numbers as those of one side
    stones, x = key[:, : scores.size(-1)], torch.cat([query, key], dim=-1)
    _ = query.mT @ query, key.mT @ key, query @ stones.mT  # standard scores
    _ = scores @ stones, scores.mT @ query  # and backward
    means = links.mT @ x
    y = links @ means
    shared = links.mT @ y  # and backward
    _ = links @ shared, torch.baddbmm(means @ y.mT, shared, x.mT)


def walk_memory(length: int, settings: Settings) -> Outcome:
    """The peak of a causal layer of stones with values against the bytes of Q, K and V."""
    ours = measure.peak(build_layer, "stones", length, settings, device=settings.device)
    return measure.outcome([ours], [3 * HEADS * length * measure.DIM * settings.dtype.itemsize])
