"""Which backend runs a pattern, and why."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from jat_graph.attention.patterns import blocked, dense, flex, graph
from jat_graph.attention.patterns.job import Job, general_mask_reasons
from jat_graph.patterns.layout import keys_read

BACKENDS: dict[str, ModuleType] = {
    "dense": dense,
    "blocked": blocked,
    "flex": flex,
    "graph": graph,
}

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


def choose(backend: str, job: Job) -> PatternChoice:
    """Return the backend asked for, if it can run, or for ``"auto"`` the one that suits."""
    if backend == "auto":
        return _choose_itself(job)
    if backend not in BACKENDS:
        raise ValueError(f"backend must be auto, {', '.join(BACKENDS)}, got {backend!r}")
    return _checked(PatternChoice(backend, "the caller asks for it"), job)


def _checked(choice: PatternChoice, job: Job) -> PatternChoice:
    reasons = BACKENDS[choice.backend].unsupported(job)
    if reasons:
        raise ValueError(f"backend {choice.backend!r} cannot run: {'; '.join(reasons)}")
    return choice


def _choose_itself(job: Job) -> PatternChoice:
    length = job.query.size(2)
    reasons = general_mask_reasons(job.mask)
    if reasons:
        why = f"'blocked' cannot run: {'; '.join(reasons)}"
        return _checked(PatternChoice("dense", why), job)
    if length <= SHORT:
        return PatternChoice("dense", f"{length} tokens are at most {SHORT}")
    if length > MEDIUM or job.pattern.num_sequences:
        return PatternChoice("blocked", f"{length} tokens are more than {SHORT}")
    heads = range(min(job.rule.period, job.query.size(1)))
    share = (
        sum(keys_read(job.rule.of_head(head), length) for head in heads) / len(heads) / length**2
    )
    backend = "dense" if share > 0.5 else "blocked"
    return PatternChoice(backend, f"blocks would read {share:.0%} of all pairs of {length} tokens")
