"""Numba and Triton wait until they are used; tasks run in threads, whose errors come out."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from jat_graph.core.compiling import HAS_TRITON, choose, run_tasks
from jat_graph.jumps.kernels import counting
from tests.jumps.kernels.support import threads

ROOT = Path(__file__).resolve().parents[3]


def run_script(script: str, *arguments: str, **environment: str) -> str:
    """Return what a script prints in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment or None,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_each_device_has_its_form():
    forms = counting.count_torch, counting.count_numba, counting.count_triton
    assert choose(torch.device("cpu"), *forms) is counting.count_numba
    assert choose(torch.device("meta"), *forms) is counting.count_torch


# Runs each function with a driver that knows a GPU but has none: kernels are compiled to machine
# code and not launched. Prints name, PTX and resources of each, for each line of sizes.
COMPILE = """
import json, re, subprocess, sys, tempfile
from pathlib import Path
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

arch = int(sys.argv[1])
tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"

class Driver:
    def get_current_target(self): return GPUTarget("cuda", arch, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0

def compile_only(self, *args, grid, warmup, **kwargs):
    kernel = launch(self, *args, grid=grid, warmup=True, **kwargs)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, check=True)
    used = {k: int(v) for k, v in re.findall(r"(STACK|LOCAL):(\\d+)", said.stdout.decode())}
    used["SHARED"] = kernel.metadata.shared
    compiled.append((self.__name__, kernel.asm["ptx"], used))

driver.set_active(Driver())
launch, JITFunction.run = JITFunction.run, compile_only
from jat_graph.jumps.kernels import counting, ranking, significance, threshold_product

if len(sys.argv) > 3:
    from jat_graph.clusters.choice import Nodes, Rule, empty_choice, grow_for
    from jat_graph.clusters.gpu.building import average
    from jat_graph.clusters.tree import halve_triton
    from jat_graph.clusters.gpu import kernel
    for tokens, dtype in json.loads(sys.argv[3]):
        compiled, rule = [], Rule()
        query = torch.zeros(2, tokens, 64)
        key = torch.zeros(1, 9000, 64, dtype=getattr(torch, dtype))
        tree = grow_for(rule, key)
        given = empty_choice(query, 9000, tree, rule), Nodes.of(tree, key, key, rule)
        halve_triton(key[:, :1024].unflatten(1, (2, 512)), 64)
        average(tree.keys, key, key, 8, [len(tree.keys[0]) // 8 // 4**n for n in range(4)])
        found = kernel.read(query, key, key, *given, chosen=False)
        if tokens > 1:
            kernel.differentiate(found[0], *found, query, key, key, *given)
        print(json.dumps(compiled))
for dtype, graphs, keys, length, width in json.loads(sys.argv[2]):
    compiled, dtype = [], getattr(torch, dtype)
    columns = torch.zeros(graphs, keys, length, dtype=dtype)
    limits = torch.zeros(graphs, keys, dtype=dtype)
    counting.count_triton(columns, limits, 0, length)
    counting.count_triton(columns, limits, 1, length)
    ranking.rank_triton(columns, limits)
    order = torch.zeros(graphs, keys, length, dtype=torch.int32)
    x = torch.zeros(graphs, length, width, dtype=dtype)
    threshold_product.add_joined_triton(x, order, order)
    significance.peaks_triton(x, x)
    print(json.dumps(compiled))
"""
SIZES = {
    "odd": ("float32", 3, 5, 77, 13),
    "one of everything": ("float32", 1, 1, 1, 1),
    "several segments": ("float64", 2, 16, 1040, 64),
}
SHARED = {80: 163 * 2**10, 90: 227 * 2**10}  # bytes that a block may have, by architecture
VOTING = {"_count_tile", "_search"}
SUMMING = {"_move", "_read_sums", "_stream_queries", "_sum_segments"}


def compile_for(arch: int, *given: Any) -> list[list[Any]]:
    """Return name, PTX and resources of each kernel that is launched, for each line of sizes."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    lines = run_script(COMPILE, str(arch), *map(json.dumps, given), **environment).splitlines()
    found = [*map(json.loads, lines)]
    for name, _, used in (kernel for kernels in found for kernel in kernels):
        fits = used["STACK"] + used["LOCAL"] == 0 and used["SHARED"] <= SHARED[arch]
        assert fits, f"{name} on sm_{arch} spills, or has no room: {used}"
    return found


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")
@pytest.mark.parametrize("arch", SHARED)
def test_the_kernels_compile_for_a_gpu_and_round_each_product_on_its_own(arch: int) -> None:
    found = compile_for(arch, list(SIZES.values()))
    compiled = dict(zip(SIZES, found, strict=True))
    for sizes, kernels in compiled.items():
        wanted = VOTING | SUMMING | ({"_sum_ends"} if sizes == "several segments" else set())
        assert {name for name, *_ in kernels} == wanted
    # A vote is neither fused with the comparison, nor flushed to zero where it is small.
    codes = [code for name, code, _ in compiled["odd"] if name in VOTING]
    assert len(codes) == 3
    for code in codes:
        assert "mul.f32" in code and "fma" not in code and ".ftz" not in code
    # Sums are not rounded to TF32, which is what Triton does unless it is told.
    (code,) = [code for name, code, _ in compiled["odd"] if name == "_stream_queries"]
    assert "fma.rn.f32" in code and "mma" not in code


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")
@pytest.mark.parametrize("arch", SHARED)
def test_trees_compile_for_a_gpu_with_tensor_cores(arch: int) -> None:
    prompt, token = compile_for(arch, [], [[9000, "bfloat16"], [1, "bfloat16"]])
    building = ["halve", "average", "average"]
    names = [name for name, *_ in prompt]
    assert names[:7] == [*building, "read", "read", "near", "near"]
    assert sorted(names[7:]) == ["met"] * 3 + ["picked"] * 3
    assert [name for name, *_ in token] == [*building, "look", "read", "combine"]
    for _, code, _ in [*prompt[3:], *token[3:5]]:
        assert ("mma.sync" in code or "wgmma" in code) and "bf16" in code


@pytest.mark.parametrize("number", [1, 2, 3])
def test_tasks_run_in_order_with_torch_on_one_thread_and_no_graph(number):
    x = torch.ones(3, requires_grad=True)

    def work(task):
        return task, torch.get_num_threads(), (x * task).requires_grad

    with threads(number):
        assert list(run_tasks(str, [])) == []
        results = list(run_tasks(work, range(20)))
        assert [task for task, *_ in results] == [*range(20)]
        assert number == 1 or {inside[1:] for inside in results} == {(1, False)}
        with torch.inference_mode():
            total = torch.zeros(8)
            list(run_tasks(lambda task: total[task].fill_(task), range(8)))
        assert total.tolist() == [*range(8)]
        assert torch.get_num_threads() == number and torch.is_grad_enabled()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_error_comes_out_and_the_next_call_works(number):
    def work(task):
        if task == 2:
            raise ValueError("two")
        return task

    with threads(number):
        with pytest.raises(ValueError, match="two"):
            list(run_tasks(work, range(5)))
        assert list(run_tasks(work, [0, 1, 3])) == [0, 1, 3]
        assert torch.get_num_threads() == number


# A child of a process that has a pool has none of its threads: its own begin at the first call.
FORK = """
import os, torch
from jat_graph.core.compiling import run_tasks
torch.set_num_threads(2)
square = lambda x: x * x
assert list(run_tasks(square, range(4))) == [0, 1, 4, 9]
child = os.fork()
if child == 0:
    same = list(run_tasks(square, range(4))) == [0, 1, 4, 9] and torch.get_num_threads() == 2
    os._exit(0 if same else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_gets_a_pool_of_its_own():
    assert run_script(FORK) == "0\n"
