"""Numba and Triton wait until they are used; tasks run in threads, whose errors come out."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from examples.benchmarks.compiling import ARCHITECTURES
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


COMPILE = """
import json, sys, torch
from examples.benchmarks import compiling
compiling.SHARED = {int(sys.argv[1]): int(sys.argv[4])} if len(sys.argv) > 4 else compiling.SHARED
for dtype, *given in json.loads(sys.argv[2]):
    work = getattr(compiling, sys.argv[3])
    given = (getattr(torch, dtype), *given) if sys.argv[3] == "pairs" else given
    print(json.dumps(compiling.compile_for(int(sys.argv[1]), lambda: work(*given))))
"""
SIZES = {
    "odd": ("float32", 3, 5, 77, 13),
    "one of everything": ("float32", 1, 1, 1, 1),
    "several segments": ("float64", 2, 16, 1040, 64),
}
VOTING = {"_count_tile", "_search"}
SUMMING = {"_move", "_read_sums", "_stream_queries", "_sum_segments"}


def compile_for(arch: int, sizes: Iterable[Any], work: str, *more: str) -> list[dict[str, str]]:
    """Return the code of each kernel that is launched, for each line of sizes."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    given = str(arch), json.dumps([*sizes]), work, *more
    lines = run_script(COMPILE, *given, **environment).splitlines()
    return [{one[0]: one[-1] for one in json.loads(line)} for line in lines]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_kernels_compile_for_a_gpu_and_round_each_product_on_its_own(arch: int) -> None:
    found = dict(zip(SIZES, compile_for(arch, SIZES.values(), "pairs"), strict=True))
    for sizes, codes in found.items():
        wanted = VOTING | SUMMING | ({"_sum_ends"} if sizes == "several segments" else set())
        assert codes.keys() == wanted
    # A vote is neither fused with the comparison, nor flushed to zero where it is small.
    for code in (found["odd"][name] for name in VOTING):
        assert "mul.f32" in code and "fma" not in code and ".ftz" not in code
    # Sums are not rounded to TF32, which is what Triton does unless it is told.
    code = found["odd"]["_stream_queries"]
    assert "fma.rn.f32" in code and "mma" not in code


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_trees_compile_for_a_gpu_with_tensor_cores(arch: int) -> None:
    # With fewer features there is more room; sm_80 spills 104 bytes of gradients with 256.
    sizes = [("", 128 if arch == 80 else 256), ("", 128, 1)]
    for codes, (_, _, *token) in zip(compile_for(arch, sizes, "trees"), sizes, strict=True):
        reading = {"look", "read"} if token else {"read", "near", "met", "picked"}
        others = {"halve", "average"} | ({"combine"} if token else set())
        assert codes.keys() == reading | others
        for name in reading:
            code = codes[name]
            assert ("mma.sync" in code or "wgmma" in code) and "bf16" in code, name


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")
def test_a_kernel_that_has_no_room_is_refused() -> None:
    with pytest.raises(AssertionError, match="average must fit sm_90"):
        compile_for(90, [("", 128, 1)], "trees", str(2**14))


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
