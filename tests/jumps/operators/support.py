"""The contract of operators made of votes, and maps of integers that meet the threshold often."""

from typing import Any, ClassVar

import torch
from hypothesis import strategies as st

from jat_graph.core.masks import resolve_mask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import MapScores, QueryKeyScores
from jat_graph.jumps.config import JatConfig, PairGraph
from jat_graph.testing import OperatorContract
from tests.inputs import random_heads, random_padding_mask
from tests.oracles import reference_graph
from tests.support import heads_and_masks


class PairsContract(OperatorContract):
    """A, as ``create`` makes an operator of votes by some settings under some mask."""

    settings: ClassVar[dict[str, Any]] = {}
    causal = False
    side: str | None = None  # of padding

    def create_inputs(self):
        mask = None
        if self.side is not None:
            mask = random_padding_mask(2, 12, side=self.side, min_valid=9)
        heads = random_heads(2, 3, 12, 8, attention_mask=mask, is_causal=self.causal)
        return (heads.query, heads.key) if mask is None else (heads.query, heads.key, mask)

    def create(self, adjacency):
        raise NotImplementedError

    def create_operator(self, query, key, mask=None):
        config, source = JatConfig.paper(**self.settings), QueryKeyScores(query, key, 8**-0.5)
        mask = resolve_mask(mask, self.causal, query)
        return self.create(PairAdjacency.of_scores(config, source, mask))

    def dense_truth(self, query, key, mask=None):
        options = {"attention_mask": mask, "is_causal": self.causal, **self.settings}
        return reference_graph(query, key, **options).adjacency


# Gradients reach queries and keys; the sign gate keeps the graph from being complete.
SOFT = {
    "soft_temperature": 0.7,
    "same_sign_only": True,
    "key_selection": "strided",
    "num_keys": 1,
}


@st.composite
def integer_maps(draw, masks):
    """Draw the adjacency of a map of small integers, with many ties, under a mask."""
    case = draw(heads_and_masks(masks))
    mask = resolve_mask(case.mask, case.is_causal, case.query)
    batch, heads, length = case.query.shape[:3]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    scores = torch.randint(-2, 3, (batch, heads, length, length), generator=generator)
    config = JatConfig(PairGraph(threshold=draw(st.integers(0, 3)), inclusive=draw(st.booleans())))
    return PairAdjacency.of_scores(config, MapScores(scores.float()), mask)
