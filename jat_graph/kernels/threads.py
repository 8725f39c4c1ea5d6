"""Many small operations of torch, some in each thread: faster than each of them in all threads."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_tasks(work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
    """Yield results in order, without gradients, from as many threads as torch runs on."""
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


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_pool.cache_clear)
