import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.cuda.support import DEVICE, all_votes, ballots, random_columns, random_rows

SMALL = {"SEGMENT": 8, "CHUNK": 4, "TOKENS": 16, "FEATURES": 4}


@given(ballot=ballots(longest=20, same_sign=(False,)), width=st.integers(1, 6))
def test_segments_and_slices_add_up(triton_kernels, triton_constants, ballot, width):
    from jat_graph.kernels.cuda.running_sums import add_both

    columns, _, _ = ballot
    x = random_rows(0, columns.size(0), columns.size(2), width, dtype=torch.float64)
    ranking = triton_kernels.rank(*ballot)
    with triton_constants("running_sums", **SMALL):
        found = add_both(x, *ranking)
    truth = all_votes(*ballot).sum(1).double() @ x
    torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-10)


@given(
    graphs=st.integers(1, 2),
    keys=st.integers(1, 3),
    length=st.integers(1, 20),
    orders=st.integers(1, 4),
)
def test_how_many_orders_are_held_changes_no_bit(
    triton_kernels, triton_constants, graphs, keys, length, orders
):
    from jat_graph.kernels.cuda.running_sums import add_both

    columns = random_columns(0, graphs, keys, length)
    limits = torch.full((graphs, keys), 0.1, device=DEVICE)
    ranking, x = triton_kernels.rank(columns, limits, False), random_rows(1, graphs, length, 3)
    whole = add_both(x, *ranking)
    with triton_constants("running_sums", HELD=orders * 2 * length * 3):
        assert torch.equal(add_both(x, *ranking), whole)


def test_a_batch_gives_what_its_items_give(triton_kernels):
    from jat_graph.kernels.cuda.running_sums import add_both

    columns, limits = random_columns(0, 3, 5, 50), torch.full((3, 5), 0.1, device=DEVICE)
    order, reach = triton_kernels.rank(columns, limits, False)
    x = random_rows(1, 3, 50, 6)
    items = [add_both(*(t[g : g + 1].contiguous() for t in (x, order, reach))) for g in range(3)]
    assert torch.equal(torch.cat(items), add_both(x, order, reach))


def test_the_error_does_not_grow_with_the_length(triton_kernels):
    # Features of one sign: a sum in one go would lose a digit every tenfold length.
    from jat_graph.kernels.cuda.running_sums import add_both

    length = 3000
    order = torch.arange(length, dtype=torch.int32, device=DEVICE).expand(1, 1, length)
    reach = torch.full((1, 1, length), length, dtype=torch.int32, device=DEVICE)
    x = random_rows(0, 1, length, 1) + 10
    found = add_both(x, order.contiguous(), reach)
    truth = x.double().sum(1, keepdim=True).expand_as(x)
    torch.testing.assert_close(found.double(), truth, rtol=5e-7, atol=0.0)
