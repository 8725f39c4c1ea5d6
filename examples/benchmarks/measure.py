"""Times of two sides in turns, and peaks of memory in processes of their own."""

from __future__ import annotations

import hashlib
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


def leaves(*tensors: Tensor) -> list[Tensor]:
    """Tensors that want a gradient."""
    return [tensor.detach().requires_grad_() for tensor in tensors]


def backward(*outputs: Tensor) -> None:
    """Run the backward pass from gradients of ones."""
    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])


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
