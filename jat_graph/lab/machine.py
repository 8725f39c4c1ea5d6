"""What a measurement ran on, without anything that names a person's machine."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path

import torch

import jat_graph

_MALLOC = ("MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")  # of glibc
_PACKAGES = ("torch", "numba", "triton", "torch-geometric", "torch-sparse", "transformers")


def describe_machine(device: torch.device) -> dict[str, str | int]:
    """Processor, threads, GPU, versions and what malloc was told; no host name and no path."""
    described: dict[str, str | int] = {
        "processor": _processor(),
        "cores": _cores(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
    if device.type == "cuda":
        described["gpu"] = torch.cuda.get_device_name(device)
        described["cuda"] = str(torch.version.cuda)
    for package in _PACKAGES:
        if (version := _version(package)) is not None:
            described[package] = version
    told = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name in _MALLOC]
    if told:
        described["malloc"] = " ".join(told)
    return described | {"jat_graph": jat_graph.__version__}


def source_digest() -> str:
    """A digest of the package's source: results of other code are not the same results."""
    root = Path(jat_graph.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _processor() -> str:
    """The processor's name as Linux states it, else what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
