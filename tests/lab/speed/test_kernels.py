"""The kernels benchmark names every comparison that is claimed."""

from jat_graph.lab.speed.kernels import KERNELS
from jat_graph.lab.speed.series import Settings


def test_every_claimed_comparison_is_there() -> None:
    found = {(one.what, one.against): one.lengths for one in KERNELS.series(Settings("cpu", 1))}
    words = " ".join(f"{what} {against}" for what, against in found)
    for word in ("SDPA", "torch.compile", "released", "CSR", "torch_sparse", "PyG scatter"):
        assert word in words
    assert found["count, all keys", "SDPA of the same heads"] == (384, 512)
    assert found["threshold product", "SDPA of the same heads"] == (2048, 8192, 32768)
