import pytest
import torch
from hypothesis import given

from tests.kernels.cuda.support import DEVICE, all_votes, ballots, random_columns, random_rows


@pytest.mark.parametrize("later", [False, True])
@given(ballot=ballots(longest=40, same_sign=(False,)))
def test_tiles_change_nothing_of_substance(triton_kernels, triton_constants, later, ballot):
    from jat_graph.kernels.cuda.pair_counts import add_one_side

    columns, _, _ = ballot
    x = random_rows(0, columns.size(0), columns.size(2), 19, dtype=torch.float64)
    ranking = triton_kernels.rank(*ballot)
    with triton_constants("pair_counts", QUERIES=16, TOKENS=16, FEATURES=16):
        tiled = add_one_side(x, *ranking, later=later)
    counts = all_votes(*ballot).sum(1).double()
    truth = (counts.triu(1) if later else counts.tril(-1)) @ x
    torch.testing.assert_close(tiled, truth, rtol=1e-10, atol=1e-10)


def test_a_query_reads_earlier_tokens_only(triton_kernels):
    from jat_graph.kernels.cuda.pair_counts import add_one_side

    columns, limits = random_columns(0, 1, 5, 80), torch.full((1, 5), 0.1, device=DEVICE)
    ranking, x = triton_kernels.rank(columns, limits, False), random_rows(1, 1, 80, 4)
    before = add_one_side(x, *ranking, later=False)
    x[:, 40:] += 1
    after = add_one_side(x, *ranking, later=False)
    assert torch.equal(before[:, :41], after[:, :41])
    assert not torch.equal(before, after)
