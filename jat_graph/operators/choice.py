"""Which backend runs: what each cannot do, and which of the others is cheapest."""

from __future__ import annotations

import logging

import torch

from jat_graph.ballot import Ballot
from jat_graph.config import JatConfig
from jat_graph.masks import TokenMask
from jat_graph.operators.base import Operator
from jat_graph.operators.dense import DenseOperator
from jat_graph.operators.sparse import SparseOperator
from jat_graph.operators.threshold import ThresholdOperator

logger = logging.getLogger(__name__)

# Votes for a pair that take as long as one feature of one token in a threshold product, both in
# portable torch: measured 32 on two CPU cores, halved because the matrix also takes memory.
THRESHOLD_COST = 16


def build_operator(config: JatConfig, ballot: Ballot, features: int) -> Operator:
    """Return A by the config's backend; an explicit choice never falls back.

    Args:
        config: ``backend`` and the variants.
        ballot: Who votes on which pairs.
        features: Columns that one product will have.

    Returns:
        The operator for A.

    Raises:
        ValueError: If the chosen backend cannot run; the message lists every reason.
    """
    backend = config.backend
    if backend == "auto":
        backend, why = choose_backend(config, ballot.mask, ballot.source.shape[2], features)
        logger.debug("backend %s: %s", backend, why)
    reasons = unsupported(backend, config, ballot.mask)
    if reasons:
        raise ValueError(f"backend {backend!r} cannot run: {'; '.join(reasons)}")
    if backend == "dense":
        return DenseOperator.from_ballot(ballot)
    return SparseOperator.from_ballot(ballot) if backend == "sparse" else ThresholdOperator(ballot)


def unsupported(backend: str, config: JatConfig, mask: TokenMask) -> list[str]:
    """Say why a backend cannot run.

    Args:
        backend: ``"dense"``, ``"sparse"`` or ``"threshold"``.
        config: The variants.
        mask: Which query may attend to which key.

    Returns:
        One phrase a reason; empty if it can.
    """
    reasons = []
    if backend != "dense" and config.soft_temperature is not None:
        reasons.append("soft votes need every pair; use 'dense'")
    if backend == "threshold":
        if mask.causal:
            reasons.append("under a causal mask A is no sum of threshold graphs; use 'dense'")
        if mask.pairs is not None:
            reasons.append("it takes padding masks only; use 'dense'")
        if config.inclusive and config.same_sign_only and _may_be_zero(config):
            reasons.append("inclusive votes at threshold 0 of one sign are no prefix; use 'dense'")
    return reasons


def choose_backend(
    config: JatConfig, mask: TokenMask, length: int, features: int
) -> tuple[str, str]:
    """Return the cheaper of dense and threshold, and why.

    Args:
        config: The variants.
        mask: Which query may attend to which key.
        length: Tokens L.
        features: Columns that one product will have.

    Returns:
        The backend and a sentence.
    """
    reasons = unsupported("threshold", config, mask)
    if reasons:
        return "dense", reasons[0]
    cost = THRESHOLD_COST * features
    if length > cost:
        return (
            "threshold",
            f"{length} votes a token and key cost more than {features} features, {cost}",
        )
    return "dense", f"{length} votes a token and key cost at most {features} features, {cost}"


def _may_be_zero(config: JatConfig) -> bool:
    if config.vote_rate is not None:
        return True
    rows = config.threshold if isinstance(config.threshold, tuple) else ((config.threshold,),)
    # Smaller ones are 0 in the scores' float32.
    return any(entry < torch.finfo(torch.float32).tiny for row in rows for entry in row)
