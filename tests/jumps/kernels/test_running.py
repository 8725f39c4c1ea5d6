import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from jat_graph.jumps.kernels.running import running_sums


@given(
    shape=st.tuples(*[st.integers(1, 5)] * 3),
    dim=st.integers(0, 2),
    backward=st.booleans(),
    gradient=st.booleans(),
)
def test_they_are_cumsums(shape, dim, backward, gradient):
    x = torch.randn(shape).double()
    wanted = x.flip(dim).cumsum(dim).flip(dim) if backward else x.cumsum(dim)
    assert_close(running_sums(x.clone().requires_grad_(gradient), dim, backward), wanted)
