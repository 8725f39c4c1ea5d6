"""Running a pattern: the backend that does it, and why."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from torch import Tensor

from jat_graph.attention.heads import HeadGroup, merge_heads, split_heads
from jat_graph.attention.patterns.inputs import PatternInputs, general_mask_reasons
from jat_graph.masks.tokens import TokenMask
from jat_graph.patterns.base import Pattern

BACKENDS = ("dense", "blocked", "flex", "graph")

# Judged, not measured: up to the first length one dense call should be faster whatever the pattern,
# above the second blocks should be.
SHORT, MEDIUM = 256, 1024


@dataclass(frozen=True)
class PatternChoice:
    """Which backend runs a pattern, and why.

    Args:
        backend: ``"dense"``, ``"blocked"``, ``"flex"`` or ``"graph"``.
        why: One sentence.
    """

    backend: str
    why: str

    def __str__(self) -> str:
        return f"{self.backend}: {self.why}"


def attend_within(
    pattern: Pattern,
    groups: list[HeadGroup],
    *,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return attention of all heads on their features, each query within a pattern."""
    pattern.check_size(groups[0].value.size(0), groups[0].value.size(2))
    run = run_pattern if mask.shard is None else _module("shards").run_shard
    groups = [part for group in groups for part in _by_rule(group, pattern)]
    outputs = []
    for group in groups:
        rule, own = pattern.of_head(group.heads[0]), mask.select_heads(group.heads)
        output = run(PatternInputs(*group[1:4], rule, own, dropout_p, scale))
        outputs.append(group.finish(output))
    return merge_heads([group.heads for group in groups], outputs)


def _by_rule(group: HeadGroup, pattern: Pattern) -> list[HeadGroup]:
    """Split a group into heads that share the pattern's rule, which may differ between heads."""
    indices: dict[int, list[int]] = {}
    for index, head in enumerate(group.heads):
        indices.setdefault(head % pattern.period, []).append(index)
    parts = [tuple(part) for part in indices.values()]
    heads = [tuple(group.heads[index] for index in part) for part in parts]
    tensors = (group.query, group.key, group.value, group.value_update)
    query, key, value, update = (
        [None] * len(parts) if x is None else split_heads(x, parts) for x in tensors
    )
    jumps = [group.jumps] * len(parts)
    rows = zip(heads, query, key, value, jumps, update, strict=True)
    return [HeadGroup(*own) for own in rows]


def run_pattern(inputs: PatternInputs, backend: str = "auto") -> Tensor:  # [B, H, L, Dv]
    """Return attention under a pattern and a mask, by the backend asked for."""
    output: Tensor = _module(choose(backend, inputs).backend).run(inputs)
    return output


def choose(backend: str, inputs: PatternInputs) -> PatternChoice:
    """Return the backend asked for, if it can run, or for ``"auto"`` the one that suits."""
    if backend == "auto":
        return _choose_itself(inputs)
    if backend not in BACKENDS:
        raise ValueError(f"backend must be auto, {', '.join(BACKENDS)}, got {backend!r}")
    return _checked(PatternChoice(backend, "the caller asks for it"), inputs)


def _checked(choice: PatternChoice, inputs: PatternInputs) -> PatternChoice:
    reasons = _module(choice.backend).reasons_against(inputs)
    if reasons:
        raise ValueError(f"backend {choice.backend!r} cannot run: {'; '.join(reasons)}")
    return choice


def _choose_itself(inputs: PatternInputs) -> PatternChoice:
    length = inputs.query.size(2)
    reasons = general_mask_reasons(inputs.mask)
    if reasons:
        why = f"'blocked' cannot run: {'; '.join(reasons)}"
        return _checked(PatternChoice("dense", why), inputs)
    if length <= SHORT:
        return PatternChoice("dense", f"{length} tokens are at most {SHORT}")
    if length > MEDIUM or inputs.pattern.num_sequences:
        return PatternChoice("blocked", f"{length} tokens are more than {SHORT}")
    share = _module("layout").share_read(inputs.rule, length, inputs.query.size(1))
    backend = "dense" if share > 0.5 else "blocked"
    return PatternChoice(backend, f"blocks would read {share:.0%} of all pairs of {length} tokens")


def _module(name: str) -> ModuleType:
    """Return a module of this room, loaded at its first use where PyG or dynamo come with it."""
    return import_module(f"jat_graph.attention.patterns.{name}")
