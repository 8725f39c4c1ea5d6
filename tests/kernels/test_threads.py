"""Tasks in threads: their order, their errors, and how many threads torch has."""

import os

import pytest
import torch

from jat_graph.kernels.compiling import run_tasks
from tests.kernels.test_compiling import run_script


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_order_and_torch_keeps_its_threads(threads):
    assert list(run_tasks(lambda size: float(torch.ones(size).sum()), range(20))) == [*range(20)]
    assert list(run_tasks(str, [])) == []
    assert torch.get_num_threads() == threads


def test_each_thread_runs_torch_on_one_and_keeps_no_graph(threads):
    x = torch.ones(3, requires_grad=True)

    def work(task):
        return torch.get_num_threads(), (x * task).requires_grad

    inside = list(run_tasks(work, range(8)))
    assert threads == 1 or inside == [(1, False)] * 8
    assert torch.is_grad_enabled()


def test_each_thread_writes_to_tensors_of_inference_mode(threads):
    with torch.inference_mode():
        total = torch.zeros(8)
        list(run_tasks(lambda task: total[task].fill_(task), range(8)))
    assert total.tolist() == [*range(8)]


def test_an_error_comes_out_and_the_next_call_works(threads):
    def work(task):
        if task == 2:
            raise ValueError("two")
        return task

    with pytest.raises(ValueError, match="two"):
        list(run_tasks(work, range(5)))
    assert list(run_tasks(work, [0, 1, 3])) == [0, 1, 3]
    assert torch.get_num_threads() == threads


# A child of a process that has a pool has none of its threads: its own begin at the first call.
FORK = """
import os, torch
from jat_graph.kernels.compiling import run_tasks
torch.set_num_threads(2)
square = lambda x: x * x
assert list(run_tasks(square, range(4))) == [0, 1, 4, 9]
child = os.fork()
if child == 0:
    same = list(run_tasks(square, range(4))) == [0, 1, 4, 9] and torch.get_num_threads() == 2
    os._exit(0 if same else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_gets_a_pool_of_its_own():
    assert run_script(FORK) == "0\n"
