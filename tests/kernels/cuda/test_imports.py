import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

# Heads that join some pairs, through every backend and with chosen keys. Triton cannot be imported:
# to find it in sys.modules would prove nothing, since PyG imports torch._dynamo, which takes it.
JUMP = """
import sys
sys.modules["triton"] = None
import torch, jat_graph
torch.manual_seed(0)
query, key, value = 1.5 * torch.randn(3, 1, 2, 40, 8)
base = torch.nn.functional.scaled_dot_product_attention(query, key, value)
for settings in ({"backend": "dense"}, {"backend": "sparse"}, {"backend": "threshold"},
                 {"key_selection": "significance"}):
    config = jat_graph.JatConfig.paper(heads=2, **settings)
    output = jat_graph.jump_attention(query.requires_grad_(), key, value, config=config)
    output.sum().backward()
    assert not torch.allclose(output, base)
print([name for name in sys.modules if name.startswith("jat_graph.kernels.cuda")])
"""


def test_heads_on_the_cpu_need_no_triton() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", JUMP], capture_output=True, text=True, cwd=ROOT
    )
    assert run.stdout == "[]\n", run.stderr
