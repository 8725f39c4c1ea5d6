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
from tests.oracles import (
    reference_adjacency,
    reference_graph,
    reference_mask,
    reference_voting_keys,
)
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
def integer_ballots(draw, causal=True):
    """Draw a config, a map ``[B, H, L, L]`` of small integers, its mask, and whether it is causal.

    Some keys are strided: the choice among them depends on no rounding.
    """
    batch, heads, length = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 9))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    scores = torch.randint(-2, 3, (batch, heads, length, length), generator=generator).double()
    padding = None
    if draw(st.booleans()):
        padding = torch.rand(batch, length, generator=generator) < 0.7
    is_causal = causal and draw(st.booleans())
    selection = {"key_selection": "strided"}
    if is_causal:
        selection |= {"key_step": draw(st.integers(1, 2))}
    else:
        selection |= {"num_keys": draw(st.integers(1, 5))}
    config = JatConfig.paper(
        threshold=draw(st.integers(0, 4)),
        same_sign_only=draw(st.booleans()),
        inclusive=draw(st.booleans()),
        nodes=draw(st.sampled_from(("all", "selected"))),
        **(selection if draw(st.booleans()) else {}),
    )
    mask = resolve_mask(padding, is_causal, scores)
    return config, scores, mask, is_causal


def integer_truth(config, scores, mask, is_causal):
    """The oracle's adjacency of a drawn map."""
    padding = None if mask.valid is None else mask.valid[:, 0]
    pairs = reference_mask(scores, padding, is_causal).pairs
    voters = reference_voting_keys(
        scores,
        pairs,
        key_selection=config.graph.key_selection,
        num_keys=config.graph.num_keys,
        key_step=config.graph.key_step,
    )
    return reference_adjacency(
        scores,
        config.graph.threshold,
        pairs=pairs,
        voters=voters,
        same_sign_only=config.graph.same_sign_only,
        inclusive=config.graph.inclusive,
        nodes=config.graph.nodes,
    )


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
