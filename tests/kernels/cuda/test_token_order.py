import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.cuda.support import DEVICE


@given(length=st.integers(1, 40), rows=st.integers(1, 3), seed=st.integers(0, 2**20))
def test_values_by_place_become_values_by_token(triton_kernels, length, rows, seed):
    from jat_graph.kernels.cuda.token_order import by_token

    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(1, rows, length, generator=generator).argsort(-1).int()
    absent = torch.rand(order.shape, generator=generator) < 0.2
    values = torch.randint(-9, 10, order.shape, generator=generator).int()
    found = by_token(order.masked_fill(absent, -1).to(DEVICE), values.to(DEVICE))
    wanted = torch.empty_like(values).scatter_(-1, order.long(), values.masked_fill(absent, 0))
    assert torch.equal(found.cpu(), wanted)
