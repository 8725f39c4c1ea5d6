import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jat_graph.operators.rows
from jat_graph.operators import DenseOperator
from jat_graph.operators.rows import VoteRows
from tests.operators.support import integer_maps
from tests.support import MASKS


@given(data=st.data(), elements=st.sampled_from((1, 30, 10**6)), kept=st.sampled_from((1, 256)))
def test_blocks_are_the_votes_of_the_dense_matrix(data, elements, kept):
    ballot = data.draw(integer_maps(MASKS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jat_graph.operators.rows, "BLOCK", elements)
        patch.setattr(jat_graph.operators.rows, "KEPT_KEYS", kept)
        blocks = list(VoteRows(ballot))
    truth = DenseOperator.of_pairs(ballot).to_dense()
    voters = ballot.voters().expand(ballot.source.shape).unsqueeze(-1)
    length = truth.size(-1)
    assert [row for rows, _ in blocks for row in range(length)[rows]] == list(range(length))
    for rows, votes in blocks:
        assert votes.size(-1) == (rows.stop if ballot.mask.causal else length)
        assert torch.equal(votes / voters[:, :, rows], truth[:, :, rows, : votes.size(-1)])
        assert truth[:, :, rows, votes.size(-1) :].count_nonzero() == 0
    if elements == 1:
        assert len(blocks) == length
