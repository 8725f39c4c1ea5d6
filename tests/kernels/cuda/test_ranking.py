import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.cuda.support import DEVICE, REPEATS, all_votes, ballots, random_columns


def joined(order, reach):
    """Return who joins whom, ``[G, U, L, L]`` bool, as an order and the reach in it say."""
    length = order.size(-1)
    votes = torch.zeros(*order.shape, length, dtype=torch.bool)
    for graph, key in torch.cartesian_prod(*map(torch.arange, order.shape[:2])).tolist():
        places = order[graph, key].tolist()
        for place, token in enumerate(places):
            count = int(reach[graph, key, place])
            others = places[:count] if count >= 0 else places[count:]
            votes[graph, key, token, others] = count != 0
    return votes


@given(ballot=ballots())
def test_the_reach_implies_the_votes(triton_kernels, ballot):
    order, reach = triton_kernels.rank(*ballot)
    assert order.dtype == reach.dtype == torch.int32
    # A masked token may lie within the reach of a zero, where its features are zero, too.
    votes = joined(order, reach) & ~ballot[0].isnan().unsqueeze(-2).cpu()
    assert torch.equal(votes, all_votes(*ballot).cpu())


@given(ballot=ballots())
def test_the_order_holds_every_token_once_by_falling_score(triton_kernels, ballot):
    columns, _ = ballot
    order, reach = triton_kernels.rank(*ballot)
    tokens = torch.arange(order.size(-1), dtype=torch.int32, device=DEVICE)
    assert torch.equal(order.sort(-1).values, tokens.expand_as(order))
    scores = columns.gather(-1, order.long())
    assert scores.nan_to_num(0.0).diff(dim=-1).le(0).all()
    assert not reach[scores.isnan()].any()


@given(ballot=ballots(), block=st.sampled_from((1, 20, 50)))
def test_blocks_change_nothing(triton_kernels, triton_constants, ballot, block):
    order, reach = triton_kernels.rank(*ballot)
    with triton_constants("ranking", BLOCK=block, PLACES=8):
        blocks = triton_kernels.rank(*ballot)
    assert torch.equal(order, blocks[0])
    assert torch.equal(reach, blocks[1])


@pytest.mark.parametrize(("dtype", "joins"), [(torch.float64, 2), (torch.float32, 0)])
def test_the_search_asks_for_the_rounded_product(triton_kernels, dtype, joins):
    # (1 + 2⁻¹³)² is 1 + 2⁻¹² + 2⁻²⁶, whose last term float32 rounds away.
    columns = torch.full((1, 1, 2), 1 + 2.0**-13, dtype=dtype, device=DEVICE)
    limits = torch.full((1, 1), 1 + 2.0**-12, dtype=dtype, device=DEVICE)
    assert triton_kernels.rank(columns, limits)[1].tolist() == [[[joins] * 2]]


def test_equal_scores_keep_the_order_of_their_tokens(triton_kernels):
    columns = torch.tensor([[[2.0, -1.0, 2.0, -1.0, 2.0]]], device=DEVICE)
    order, _ = triton_kernels.rank(columns, torch.zeros(1, 1, device=DEVICE))
    assert order.tolist() == [[[0, 2, 4, 1, 3]]]


def test_runs_are_equal(triton_kernels):
    columns, limits = random_columns(0, 2, 9, 100), torch.full((2, 9), 0.2, device=DEVICE)
    first = triton_kernels.rank(columns, limits)
    for _ in range(REPEATS):
        again = triton_kernels.rank(columns, limits)
        assert torch.equal(first[0], again[0])
        assert torch.equal(first[1], again[1])
