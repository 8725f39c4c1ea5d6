"""The checks that come before every timing."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.testing import assert_within_budget
from jat_graph.voting.rule import VoteRule
from jat_graph.voting.scores import full_precision

# Tokens whose sums are computed by the definition, in every sequence and head.
SAMPLED_TOKENS = 16


class CheckError(Exception):
    """Two sides that must agree do not: their times mean nothing."""


class NoRoomError(CheckError):
    """A side needs more memory than the machine has."""


def require_equal(what: str, got: Tensor, wanted: Tensor) -> None:
    """Refuse to go on unless two results are equal."""
    if got.shape != wanted.shape:
        shapes = f"{list(got.shape)} and {list(wanted.shape)}"
        raise CheckError(f"{what}: the result check failed, shapes are {shapes}; nothing was timed")
    wrong = int((got != wanted).sum())
    if wrong:
        raise CheckError(
            f"{what}: the result check failed, {wrong} of {got.numel()} numbers differ; "
            "nothing was timed"
        )


def require_close(what: str, got: Tensor, low_precision: Tensor, truth: Tensor) -> None:
    """Refuse to go on unless a result is as right as plain code at its precision."""
    try:
        assert_within_budget(got, low_precision, truth)
    except AssertionError as error:
        raise CheckError(f"{what}: the result check failed, {error}; nothing was timed") from None


def sampled_tokens(length: int, device: torch.device) -> Tensor:  # [r]
    """Return some positions, the same for each length."""
    generator = torch.Generator().manual_seed(1)
    return torch.randperm(length, generator=generator)[:SAMPLED_TOKENS].to(device)


def count_rows(rule: VoteRule, key_scores: Tensor, rows: Tensor) -> Tensor:
    """Count the votes for the pairs of some tokens with all, by the definition."""
    columns = key_scores.transpose(-1, -2).contiguous()  # [B, H, U, L]
    threshold = rule.threshold[..., None, None]
    counts = columns.new_zeros(*columns.shape[:2], len(rows), columns.size(-1))
    for column in columns.unbind(2):
        counts += rule.votes(column[..., rows, None], column[..., None, :], None, threshold)
    return counts


def require_product(what: str, got: Tensor, rows: Tensor, weights: Tensor, x: Tensor) -> None:
    """Refuse to go on unless a product is right in some rows, whose weights are known in full."""
    with full_precision(x.device):
        plain = weights.to(x.dtype) @ x
        truth = weights.double() @ x.double()
    require_close(what, got[:, :, rows], plain, truth)
