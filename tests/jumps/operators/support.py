"""Exact arithmetic: maps of small integers whose products meet the threshold all the time."""

import torch
from hypothesis import strategies as st

from jat_graph.core.masks import resolve_mask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import MapScores
from jat_graph.jumps.config import JatConfig, PairGraph
from tests.oracles import reference_adjacency, reference_mask, reference_voting_keys
from tests.support import heads_and_masks


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
