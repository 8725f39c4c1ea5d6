"""The kernels compile for a GPU, which needs none: the interpreter accepts more than that does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# Runs each function with a driver that knows a Hopper GPU but has none: kernels are compiled to its
# machine code and not launched. Prints the name and the PTX of each, for each line of sizes.
COMPILE = """
import json, sys
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

class Driver:
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0

def compile_only(self, *args, grid, warmup, **kwargs):
    kernel = launch(self, *args, grid=grid, warmup=True, **kwargs)
    assert kernel.asm["cubin"]
    compiled.append((self.__name__, kernel.asm["ptx"]))

driver.set_active(Driver())
launch, JITFunction.run = JITFunction.run, compile_only
from jat_graph.kernels import cuda

for dtype, graphs, keys, length, width in json.loads(sys.argv[1]):
    compiled, dtype = [], getattr(torch, dtype)
    columns = torch.zeros(graphs, keys, length, dtype=dtype)
    limits = torch.zeros(graphs, keys, dtype=dtype)
    cuda.count(columns, limits, 0, length)
    cuda.count(columns, limits, 1, length)
    cuda.rank(columns, limits)
    order = torch.zeros(graphs, keys, length, dtype=torch.int32)
    x = torch.zeros(graphs, length, width, dtype=dtype)
    cuda.add_joined(x, order, order)
    cuda.peaks(x, x)
    print(json.dumps(compiled))
"""
SIZES = {
    "odd": ("float32", 3, 5, 77, 13),
    "one of everything": ("float32", 1, 1, 1, 1),
    "several segments": ("float64", 2, 16, 1040, 64),
}
VOTING = {"_count_tile", "_search"}
SUMMING = {"_move", "_read_sums", "_stream_queries", "_sum_segments"}


@pytest.fixture(scope="module")
def compiled(triton_kernels):
    """Name and PTX of every kernel that runs, for each of ``SIZES``."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILE, json.dumps(list(SIZES.values()))],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    assert run.returncode == 0, run.stderr
    return dict(zip(SIZES, map(json.loads, run.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("sizes", SIZES)
def test_the_kernels_compile_for_a_gpu(compiled, sizes):
    wanted = VOTING | SUMMING | ({"_sum_ends"} if sizes == "several segments" else set())
    assert {name for name, _ in compiled[sizes]} == wanted


def test_a_vote_is_a_product_rounded_on_its_own(compiled):
    # Neither fused with the comparison, nor flushed to zero where it is small.
    codes = [code for name, code in compiled["odd"] if name in VOTING]
    assert len(codes) == 3
    for code in codes:
        assert "mul.f32" in code
        assert "fma" not in code
        assert ".ftz" not in code


def test_float32_is_multiplied_as_float32(compiled):
    # Not rounded to TF32, which is what Triton does unless it is told.
    (code,) = [code for name, code in compiled["odd"] if name == "_stream_queries"]
    assert "fma.rn.f32" in code
    assert "mma" not in code
