"""How kernels run: which form on a device, compiled by numba or Triton, in which threads.

Neither is imported before one of its loops runs. Until then the files of the operations know
``numba`` and ``tl`` by name only.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, cached_property, partial
from importlib.util import find_spec
from threading import Barrier, _DummyThread, current_thread
from typing import Any, TypeVar, cast

import torch
from numpy.typing import NDArray
from torch.autograd import forward_ad

Array = NDArray[Any]
Function = TypeVar("Function", bound=Callable[..., Any])
Task = TypeVar("Task")
Result = TypeVar("Result")
Value = TypeVar("Value")
# torch for Windows has no Triton, and numba is an extra.
HAS_NUMBA, HAS_TRITON = (find_spec(name) is not None for name in ("numba", "triton"))
SLOW = "pairs take 5 to 80 times as long, and trees of keys more than SDPA"


def choose(
    device: torch.device, plain: Function, cpu: Function, cuda: Function, slow: bool = False
) -> Function:
    """Return the form that runs on a device; the plain one on a CPU may be ``slow``."""
    if slow and device.type == "cpu" and not HAS_NUMBA:
        warnings.warn(f"numba is missing: {SLOW}; pip install 'jat_graph[numba]'", stacklevel=2)
    forms = {"cpu": cpu if HAS_NUMBA else plain, "cuda": cuda if HAS_TRITON else plain}
    return forms.get(device.type, plain)


def in_transform() -> bool:
    """Tell whether torch.func or forward-mode differentiation is at work."""
    # Neither can follow functions that bring a backward pass of their own.
    active = torch._C._are_functorch_transforms_active
    return not torch.compiler.is_compiling() and (active() or forward_ad._current_level >= 0)


def steps(stop: int, elements: int, each: int) -> Iterator[slice]:
    """Yield slices from 0 to ``stop``, of so many elements, ``each`` an entry, and one at least."""
    # Without `range`, with which torch.compile would make a program for each length.
    end = 0
    step = max(1, elements // max(1, each))
    while end < stop:
        start = end
        end = end + step
        yield slice(start, end if end < stop else stop)


def loop(**options: Any) -> Callable[[Function], Function]:
    """Compile a function with numba, with IEEE arithmetic unless its options say otherwise.

    Its ``numba.prange`` loops, if it is ``parallel``, run on as many threads as torch does. Other
    compiled functions may call it.
    """

    def decorate(function: Function) -> Function:
        return cast(Function, _NumbaLoop(function, options))

    return decorate


# Options of a function whose sums may be taken in any order.
ANY_ORDER = {"fastmath": {"contract", "reassoc"}}


class _NumbaLoop:
    """A function that numba compiles at its first call; kept on disk."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.function, self.options = function, options

    @cached_property
    def compiled(self) -> Any:
        numba = _import_numba()
        self.function.__globals__["numba"] = numba
        # No fastmath for votes: each is a product as IEEE rounds it, and NaN never votes.
        build = partial(numba.njit, nogil=True, error_model="numpy", **self.options)
        try:
            return build(cache=True)(self.function)
        except RuntimeError:  # nowhere to write: neither beside the file nor in the user's cache
            return build()(self.function)

    def __call__(self, *arguments: Any) -> Any:
        if not self.options.get("parallel"):
            return self.compiled(*arguments)
        compiled = self.compiled
        numba = _import_numba()
        threads = torch.get_num_threads()
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        result = compiled(*arguments)
        # Both run on one pool of OpenMP threads, and numba's start sets the number for torch, too.
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        return result


@cache
def _import_numba() -> Any:
    """Import numba, and tell it that a loop called in a loop is what it compiles to."""
    import numba

    @numba.extending.typeof_impl.register(_NumbaLoop)
    def _(value: _NumbaLoop, context: Any) -> Any:
        return numba.types.Dispatcher(value.compiled)

    return numba


def triton_kernel(*do_not_specialize: str) -> Callable[[Callable[..., Any]], _TritonKernel]:
    """Compile a function for ``kernel[grid](…)``, but not anew for values of some arguments."""
    return partial(_TritonKernel, do_not_specialize=do_not_specialize)


class _TritonKernel:
    """A function that Triton compiles when it is first launched."""

    def __init__(self, function: Callable[..., Any], do_not_specialize: tuple[str, ...]) -> None:
        self.function, self.do_not_specialize = function, do_not_specialize

    @cached_property
    def compiled(self) -> Any:
        import triton
        import triton.language

        self.function.__globals__["tl"] = triton.language
        return triton.jit(do_not_specialize=self.do_not_specialize)(self.function)

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return self.compiled[grid]


def ceil_div(number: int, size: int) -> int:
    """Return how many blocks of a size hold a number of things."""
    return -(-number // size)


def run_tasks(work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
    """Yield results in order, without gradients, from as many threads as torch runs on."""
    # Faster than each of many small operations of torch in all of them.
    threads = torch.get_num_threads()
    if threads == 1 or len(tasks) == 1:
        yield from map(work, tasks)
        return

    inference = torch.is_inference_mode_enabled()

    def in_thread(task: Task) -> Result:
        with torch.inference_mode(inference), torch.no_grad():  # a thread has modes of its own
            return work(task)

    # OpenMP keeps its threads spinning for milliseconds after torch used them, on cores that ours
    # need; the next operation in several threads starts them again.
    if (pause := _find_pause()) is not None:
        pause(1)  # omp_pause_soft
    yield from _pool(threads).map(in_thread, tasks)


@cache
def _find_pause() -> Callable[[int], int] | None:
    """Return OpenMP 5.0's ``omp_pause_resource_all``, from the library that torch has loaded."""
    try:
        return ctypes.CDLL("libgomp.so.1").omp_pause_resource_all
    except (OSError, AttributeError):
        return None  # another OpenMP, or an old one


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return threads in each of which torch runs on one."""
    barrier = Barrier(threads + 1)

    def start() -> None:
        torch.set_num_threads(1)  # of this thread, and what later ones begin with
        torch.get_num_threads()  # it begins: from now on the number is its own
        barrier.wait()

    pool = ThreadPoolExecutor(threads, "jat_graph", start)
    for _ in range(threads):
        pool.submit(int)
    barrier.wait()
    torch.set_num_threads(threads)
    return pool


@contextmanager
def setting(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Let a variable have a value in this thread or task, inside the ``with``."""
    token = variable.set(value)
    try:
        yield
    finally:
        with suppress(ValueError):  # of a generator that is closed in another context
            variable.reset(token)


def knows_no_contexts() -> bool:
    """Tell whether this is a thread of autograd, in which checkpoints are computed again."""
    return isinstance(current_thread(), _DummyThread)


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_pool.cache_clear)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Turn autocast and TF32 off."""
    if device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
        yield  # to switch off what is not on takes as long as a small product
        return
    with torch.autocast(device.type, enabled=False):
        if device.type != "cuda" or torch.compiler.is_compiling():
            yield
            return
        own = torch.backends.cuda.matmul
        before = own.fp32_precision
        own.fp32_precision = "ieee"
        try:
            yield
        finally:
            own.fp32_precision = "none"  # as for all of torch, if that is what it was
            if own.fp32_precision != before:
                own.fp32_precision = before
