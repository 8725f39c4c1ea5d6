"""Compile all Triton kernels for GPUs that need not be there: ``python -m examples.bench compile``.

Triton's hook before a compilation compiles for an architecture, measures, and launches nothing.
"""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from jat_graph.clusters.choice import Nodes, Rule, empty_choice, grow_for
from jat_graph.clusters.tree import FAN, halve_triton
from jat_graph.jumps.kernels import counting, ranking, significance, threshold_product

ARCHITECTURES = {80: "A100", 90: "H200"}
SHARED = {80: 163 * 2**10, 90: 227 * 2**10}  # bytes that a block may have
SPILLED = 32  # bytes that ptxas keeps in memory, so that one more block fits beside others
LENGTH = 9000  # tokens: trees of three levels


class Compiled(NamedTuple):
    """A kernel, compiled: how long that took, what it takes, and its code."""

    name: str
    seconds: float
    registers: int
    spilled: int  # bytes
    shared: int  # bytes
    code: str  # PTX


def pairs(dtype: torch.dtype, graphs: int, keys: int, length: int, width: int) -> None:
    """Launch what joins pairs and sums over them."""
    columns = torch.zeros(graphs, keys, length, dtype=dtype)
    limits = torch.zeros(graphs, keys, dtype=dtype)
    counting.count_triton(columns, limits, 0, length)
    counting.count_triton(columns, limits, 1, length)
    ranking.rank_triton(columns, limits)
    order = torch.zeros(graphs, keys, length, dtype=torch.int32)
    x = torch.zeros(graphs, length, width, dtype=dtype)
    threshold_product.add_joined_triton(x, order, order)
    significance.peaks_triton(x, x)


def trees(width: int, tokens: int = LENGTH, causal: bool = True) -> None:
    """Launch what builds a tree and reads along it; of a prompt, gradients, too."""
    from jat_graph.clusters.gpu import kernel  # which need Triton
    from jat_graph.clusters.gpu.building import average

    rule = Rule(causal=causal)
    query = torch.zeros(2, tokens, width, dtype=torch.bfloat16)
    key = torch.zeros(1, LENGTH, width, dtype=torch.bfloat16)
    tree = grow_for(rule, key)
    given = empty_choice(query, LENGTH, tree, rule), Nodes.of(tree, key, key, rule)
    halve_triton(key[:, : 2 * rule.segment].view(1, 2, -1, width), rule.segment // rule.size)
    counts = [tree.clusters // FAN**level for level in range(4)]
    average(tree.keys, key, key, rule.size, counts)
    output, lse = kernel.read(query, key, key, *given, chosen=False)
    if tokens == LENGTH:
        kernel.differentiate(output, output, lse, query, key, key, *given)


WORK: dict[str, Callable[[], None]] = {
    "pairs, float32": partial(pairs, torch.float32, 3, 16, 1040, 64),
    "trees, D = 64": partial(trees, 64),
    "trees, D = 64, a token": partial(trees, 64, 1),
    "trees, D = 128": partial(trees, 128),
    "trees, D = 128, a token": partial(trees, 128, 1),
    "trees, D = 64, an encoder": partial(trees, 64, causal=False),
}


def compile_for(arch: int, work: Callable[[], None]) -> list[Compiled]:
    """Return the kernels that would be launched, compiled for an architecture; refuse spills.

    Afterwards this process launches nothing on a GPU.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.runtime import driver

    if triton.knobs.runtime.interpret:
        raise ValueError("TRITON_INTERPRET must not be set, in which nothing is compiled")
    target = GPUTarget("cuda", arch, 32)
    found = list[Compiled]()
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"

    class Driver:
        """A driver that knows a GPU."""

        def get_current_target(self) -> Any:
            return target

        def get_current_device(self) -> int:
            return arch

        def get_current_stream(self, device: int) -> int:
            return 0

    def compile_instead(*, fn: Any, compile: dict[str, Any], **others: Any) -> bool:
        options = {x: compile[x] for x in ("num_warps", "num_ctas", "num_stages")}
        own = fn.jit_function, compile["signature"], compile["constants"], compile["configs"][0]
        start = time.perf_counter()
        kernel = triton.compile(ASTSource(*own), target=target, options=options)
        seconds = time.perf_counter() - start
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(kernel.asm["cubin"])
            file.flush()
            said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, check=True)
        used = {x: int(n) for x, n in re.findall(r"(REG|STACK|LOCAL):(\d+)", said.stdout.decode())}
        sizes = used["REG"], used["STACK"] + used["LOCAL"], kernel.metadata.shared
        found.append(Compiled(fn.jit_function.__name__, seconds, *sizes, kernel.asm["ptx"]))
        return True  # so that it is not launched

    with triton.knobs.runtime.scope():
        triton.knobs.runtime.jit_cache_hook = compile_instead
        driver.set_active(Driver())
        work()
    for one in found:
        fits = one.spilled <= SPILLED and one.shared <= SHARED[arch]
        assert fits, f"{one.name} must fit sm_{arch}, got {one._replace(code='')}"
    return found


def table() -> Iterator[str]:
    """Yield a line for each kind of work and architecture."""
    import triton

    yield "|kernels|for|number|seconds|registers|spilled, bytes|shared, KB|"
    yield f"|{'-|' * 7}"
    for name, work in WORK.items():
        for arch, chip in ARCHITECTURES.items():
            with triton.knobs.compilation.scope():
                triton.knobs.compilation.always_compile = True
                found = compile_for(arch, work)
            cells = [name, f"sm_{arch} ({chip})", len(found)]
            cells += [f"{sum(x.seconds for x in found):.0f}", max(x.registers for x in found)]
            cells += [max(x.spilled for x in found)]
            cells += [math.ceil(max(x.shared for x in found) / 2**10)]
            yield f"|{'|'.join(map(str, cells))}|"
