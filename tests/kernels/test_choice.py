import subprocess
import sys

import torch

from jat_graph.kernels import cpu, portable
from jat_graph.kernels.choice import implementation


def test_each_device_has_its_loops():
    assert implementation(torch.device("cpu")) is cpu
    assert implementation(torch.device("meta")) is portable


def test_numba_and_triton_wait_until_they_are_used():
    # PyG imports numba and torch imports Triton where they are installed; this library's own
    # modules that need them wait.
    script = (
        "import sys, torch, jat_graph\n"
        "cpu, cuda = 'jat_graph.kernels.cpu', 'jat_graph.kernels.cuda'\n"
        "assert cpu not in sys.modules and cuda not in sys.modules\n"
        "query = torch.randn(1, 1, 5, 4)\n"
        "jat_graph.jump_attention(query, query, query, config=jat_graph.JatConfig())\n"
        "assert cpu in sys.modules and cuda not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_loops_leave_the_number_of_threads_to_torch():
    script = (
        "import torch, jat_graph\n"
        "torch.set_num_threads(1)\n"
        "query = torch.randn(1, 1, 5, 4)\n"
        "jat_graph.jump_attention(query, query, query, config=jat_graph.JatConfig())\n"
        "assert torch.get_num_threads() == 1\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
