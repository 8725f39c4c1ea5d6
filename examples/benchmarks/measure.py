"""Inputs of benchmarks, times of two sides in turns, and peaks of memory in their own processes.

Heads are scaled until their graphs do real work: with small scores nothing is joined, and all is
fast.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
from importlib.metadata import distributions
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.utils.benchmark import Timer

import jat_graph

Step = Callable[[], object]
Outcome = dict[str, Any]  # of one point: "ours", "theirs" and "ratio" as spreads, "facts", "note"

BLOCK_SECONDS = 0.05  # a sample of a fast side repeats it so long
# What the C library of Linux keeps of freed memory would hide peaks.
MALLOC = {"MALLOC_MMAP_MAX_": "65536"}
MALLOC |= {f"MALLOC_{name}_THRESHOLD_": "65536" for name in ("MMAP", "TRIM")}
PROCESS = Path("/proc/self")
PACKAGES = ("torch", "numba", "triton", "torch-geometric", "torch-sparse", "transformers")

THRESHOLD = 6.0  # the paper's ρ
HEADS, DIM = 4, 64
# Shares of the pairs that some key joins, and of the tokens that the median key joins to others:
WANTED, LEAST = (0.66, 0.56), (0.6, 0.5)

# Refuse to go on unless two sides agree: the times of others mean nothing.
agree = partial(torch.testing.assert_close, rtol=1e-2, atol=1e-2, check_dtype=False)


class NotMeasured(Exception):  # noqa: N818  # a reason, and no failure
    """Why a point has no numbers here."""


class Settings(NamedTuple):
    """How a benchmark runs."""

    device: str  # "cpu" or "cuda"
    repeats: int  # how often each point is measured
    dtype: torch.dtype  # of queries, keys and values


def outcome(
    ours: Sequence[float], theirs: Sequence[float], note: str = "", **facts: object
) -> Outcome:
    """Describe measurements of two sides, taken in pairs, by medians and quartiles."""
    found: Outcome = {"facts": facts, "note": note}
    for name, values in {"ours": ours, "theirs": theirs, "ratio": np.divide(ours, theirs)}.items():
        low, median, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
        found[name] = {"median": median, "low": low, "high": high, "samples": len(values)}
    return found


def seconds(step: Step) -> float:
    """Time blocks of calls, after others that bring back what the other side drove from caches."""
    timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=BLOCK_SECONDS).median


def in_turns(
    ours: Step, theirs: Step, settings: Settings, *, heavy: bool = False, **facts: Any
) -> Outcome:
    """Time two sides in turns, so that a busy minute hits both; long ones less often."""
    least, patience = (1, 15.0) if heavy else (3, 300.0)
    start, found = time.perf_counter(), []
    while len(found) < least or time.perf_counter() - start < patience:
        found.append((seconds(ours), seconds(theirs)))
        if len(found) == settings.repeats:
            break
    return outcome(*zip(*found, strict=True), **facts)


@cache
def peak(build: Callable[..., Step], *arguments: Any, device: str) -> int:
    """Peak bytes of a step in a fresh process, above what was there once it was built."""
    if device == "cpu" and not (PROCESS / "clear_refs").exists():
        raise NotMeasured("only Linux lets a process reset its peak")
    fresh = partial(ProcessPoolExecutor, 1, mp_context=get_context("spawn"))
    try:
        with patch.dict(os.environ, MALLOC), fresh() as pool:
            return pool.submit(_peak, partial(build, *arguments), device).result()
    except (MemoryError, RuntimeError) as error:  # which torch says in several ways
        # Linux kills what takes all memory.
        if "memory" in str(error) or isinstance(error, BrokenProcessPool | MemoryError):
            raise NotMeasured("a step needs more memory than the machine has") from None
        raise


def _peak(build: Callable[[], Step], device: str) -> int:
    step = build()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    (PROCESS / "clear_refs").write_text("5", encoding="ascii")
    before = _status("VmRSS")
    step()
    return max(4096, _status("VmHWM") - before)


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", (PROCESS / "status").read_text(encoding="ascii"))
    return 1024 * int(found[1]) if found else 0


def run(
    attend: Callable[..., Tensor], inputs: Sequence[Tensor], training: bool = True
) -> list[Tensor | None]:
    """Run heads forward, in training also backward; return the output and the gradients."""
    leaves = [x.detach().requires_grad_(training) for x in inputs]
    output = attend(*leaves)
    if training:
        output.backward(torch.ones_like(output))
    return [output, *(leaf.grad for leaf in leaves)]


def describe_machine(device: str) -> dict[str, Any]:
    """What a measurement runs on, without anything that names a person's machine."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    versions = {each.name: each.version for each in distributions()}
    malloc = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("MALLOC_")]
    described = {
        "processor": named[1] if named else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
    if device == "cuda":
        described |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    described |= {name: versions[name] for name in PACKAGES if name in versions}
    described |= {"malloc": " ".join(malloc)} if malloc else {}
    return described | {"jat_graph": jat_graph.__version__}


def digest_source() -> str:
    """Tell versions of the library's source apart: results of other code are not the same."""
    files = sorted(Path(jat_graph.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


class Heads(NamedTuple):
    """Queries, keys and values, ``[1, H, L, D]``."""

    query: Tensor
    key: Tensor
    value: Tensor


def number_of_keys(length: int) -> int:
    """U = ⌈5 ln L⌉, at most L."""
    return min(length, math.ceil(5 * math.log(length)))


def draw_heads(length: int, heads: int, settings: Settings) -> Heads:
    """Gaussian heads, their queries scaled until the graphs do real work; alike on every device."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(1, heads, length, DIM, generator=generator) for _ in range(3)]
    query, key, value = (tensor.to(settings.device) for tensor in drawn)
    factor = (THRESHOLD / wanted_threshold(key_scores(query, key))).sqrt()
    scaled = query * factor[..., None, None], key, value
    return Heads(*(tensor.to(settings.dtype) for tensor in scaled))


def key_scores(query: Tensor, key: Tensor, number: int | None = None) -> Tensor:  # [B, H, L, U]
    """Scores with U = ⌈5 ln L⌉ evenly spaced keys, or so many."""
    length = key.size(2)
    number = number_of_keys(length) if number is None else min(number, length)
    spaced = torch.arange(number, device=key.device) * length // number
    return query.float() @ key[:, :, spaced].float().mT / math.sqrt(query.size(-1))


def votes(scores: Tensor) -> tuple[Tensor, Tensor]:  # [B, H, U, L], [B, H, U]
    """What kernels take: columns of scores, and the product that a vote must exceed."""
    return scores.mT, torch.full_like(scores[:, :, 0], THRESHOLD)


def wanted_threshold(scores: Tensor) -> Tensor:  # [B, H]
    """The threshold at which each head's graph would do the wanted work."""
    pairs, tokens = _peaks(scores)
    part = max(1, math.floor((1 - WANTED[1]) * scores.size(2)))
    by_key = tokens.kthvalue(part, dim=2).values  # [B, H, U]
    joined = pairs.quantile(1 - WANTED[0], dim=-1, interpolation="lower")
    return torch.minimum(joined, by_key.quantile(0.5, dim=-1)).clamp(min=1e-6)


def require_work(heads: Heads) -> dict[str, Any]:
    """What the graph of evenly spaced keys has to do, in the head that has the least."""
    pairs, tokens = _peaks(key_scores(heads.query, heads.key))
    joined = float((pairs > THRESHOLD).float().mean(-1).min())
    taking_part = float((tokens > THRESHOLD).float().mean(2).quantile(0.5, dim=-1).min())
    if joined < LEAST[0] or taking_part < LEAST[1]:
        raise AssertionError(f"shares must be at least {LEAST}, got {joined} and {taking_part}")
    return {"joined": joined, "taking_part": taking_part}


def _peaks(scores: Tensor) -> tuple[Tensor, Tensor]:  # [B, H, P], [B, H, L, U]
    """The largest product over keys of sampled pairs i ≠ k, and of each token by key."""
    generator = torch.Generator().manual_seed(2)
    first = torch.randint(scores.size(2), (2**14,), generator=generator).to(scores.device)
    apart = torch.randint(1, scores.size(2), (2**14,), generator=generator).to(scores.device)
    pairs = scores[:, :, first] * scores[:, :, (first + apart) % scores.size(2)]
    found = []
    for sign in (1, -1):
        best = (sign * scores).topk(2, dim=2).values  # a token that is the extreme meets the second
        other = torch.where(sign * scores == best[:, :, :1], best[:, :, 1:], best[:, :, :1])
        found.append(scores * sign * other)
    return pairs.amax(-1), torch.maximum(*found)
