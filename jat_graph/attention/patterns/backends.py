"""Running a pattern: the backend that does it, and why."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

from jat_graph.attention.heads import HeadGroup, merge_heads
from jat_graph.attention.patterns.dense import PatternInputs
from jat_graph.masks.tokens import TokenMask
from jat_graph.patterns.base import Pattern

BACKENDS = ("dense", "blocked", "flex", "graph")

# Judged, not measured: up to the first length one dense call should be faster whatever the pattern,
# above the second blocks should be.
SHORT, MEDIUM = 256, 1024

# Numbers of the largest dense mask: 1 GiB as floats.
LARGEST_MASK = 2**28


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
    run, outputs = run_pattern, []
    if mask.shard is not None:
        from jat_graph.attention.patterns.shards import run_shard as run  # dynamo comes with it
    for group in groups:
        own = mask.select_heads(group.heads)
        output = run(PatternInputs(*group[:4], pattern, own, dropout_p, scale))
        outputs.append(group.finish(output))
    return merge_heads([group.heads for group in groups], outputs)


def run_pattern(inputs: PatternInputs, backend: str = "auto") -> Tensor:  # [B, H, L, Dv]
    """Return attention under a pattern and a mask, by the backend asked for."""
    name = choose(backend, inputs).backend
    # Loaded at its first use: PyG or dynamo comes with each but "dense".
    output: Tensor = import_module(f"jat_graph.attention.patterns.{name}").run(inputs)
    return output


def choose(backend: str, inputs: PatternInputs) -> PatternChoice:
    """Return the backend asked for, if it can run, or for ``"auto"`` the one that suits."""
    length, against_blocks = inputs.query.size(2), unsupported("blocked", inputs)
    if backend not in ("auto", *BACKENDS):
        raise ValueError(f"backend must be auto, {', '.join(BACKENDS)}, got {backend!r}")
    if backend != "auto":
        why = "the caller asks for it"
    elif against_blocks:
        backend, why = "dense", f"'blocked' cannot run: {'; '.join(against_blocks)}"
    elif length <= SHORT:
        backend, why = "dense", f"{length} tokens are at most {SHORT}"
    elif length > MEDIUM or inputs.pattern.num_sequences:
        backend, why = "blocked", f"{length} tokens are more than {SHORT}"
    else:
        from jat_graph.attention.patterns.layout import share_read  # dynamo comes with it

        share = share_read(inputs.rule, length, inputs.heads)
        backend = "dense" if share > 0.5 else "blocked"
        why = f"blocks would read {share:.0%} of all pairs of {length} tokens"
    reasons = unsupported(backend, inputs)
    if reasons:
        raise ValueError(f"backend {backend!r} cannot run: {'; '.join(reasons)}")
    return PatternChoice(backend, why)


def unsupported(backend: str, inputs: PatternInputs) -> list[str]:
    """Say why a backend cannot run, one phrase a reason."""
    query, mask, length = inputs.query, inputs.mask, inputs.query.size(2)
    if backend == "dense":
        too_large = f"a mask of {length}×{length} is too large; use 'blocked'"
        return [too_large] if length**2 > LARGEST_MASK else []
    general = mask.pairs is not None or mask.bias is not None
    reasons = {"it takes padding and causal masks only; use 'dense'": general}
    if backend == "flex":
        gradients = torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in (query, inputs.key, inputs.value)
        )
        reasons |= {
            "it has no dropout": inputs.dropout_p > 0,
            "all heads must share their padding": mask.valid is not None and mask.valid.size(1) > 1,
            "it takes no float64": query.dtype == torch.float64,
            "it has no gradients on the CPU; use 'blocked'": gradients and not query.is_cuda,
            "it needs Triton": query.is_cuda and find_spec("triton") is None,
            "it takes all heads of a layer": inputs.heads != tuple(range(len(inputs.heads))),
        }
    return [reason for reason, holds in reasons.items() if holds]
