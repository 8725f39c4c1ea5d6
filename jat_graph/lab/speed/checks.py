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
    """Refuse to go on unless two results are equal.

    Args:
        what: What was computed, for the message.
        got: Our result.
        wanted: The other side's.

    Raises:
        CheckError: If they differ in shape or in any entry.

    Shapes:
        - got, wanted: any, the same
    """
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
    """Refuse to go on unless a result is as right as plain code at its precision.

    Args:
        what: What was computed, for the message.
        got: Our result.
        low_precision: Plain code at the precision of ``got``.
        truth: The definition in float64.

    Raises:
        CheckError: If the error is above the budget of
            :func:`jat_graph.testing.assert_within_budget`.

    Shapes:
        - got, low_precision, truth: any, the same
    """
    try:
        assert_within_budget(got, low_precision, truth)
    except AssertionError as error:
        raise CheckError(f"{what}: the result check failed, {error}; nothing was timed") from None


def sampled_tokens(length: int, device: torch.device) -> Tensor:
    """Return some positions, the same for each length.

    Args:
        length: Tokens L.
        device: Where to put them.

    Returns:
        Different positions, at most 16.

    Shapes:
        - output: ``[r]``
    """
    generator = torch.Generator().manual_seed(1)
    return torch.randperm(length, generator=generator)[:SAMPLED_TOKENS].to(device)


def count_rows(rule: VoteRule, key_scores: Tensor, rows: Tensor) -> Tensor:
    """Count the votes for the pairs of some tokens with all, by the definition.

    Args:
        rule: When a product is a vote; without norms.
        key_scores: X_ij of the voting keys.
        rows: Positions of the tokens.

    Returns:
        Counts in the dtype of the scores; a token with itself is counted, too.

    Shapes:
        - key_scores: ``[B, H, L, U]``
        - rows: ``[r]``
        - output: ``[B, H, r, L]``
    """
    columns = key_scores.transpose(-1, -2).contiguous()  # [B, H, U, L]
    threshold = rule.threshold[..., None, None]
    counts = columns.new_zeros(*columns.shape[:2], len(rows), columns.size(-1))
    for column in columns.unbind(2):
        counts += rule.votes(column[..., rows, None], column[..., None, :], None, threshold)
    return counts


def require_product(what: str, got: Tensor, rows: Tensor, weights: Tensor, x: Tensor) -> None:
    """Refuse to go on unless a product is right in some rows, whose weights are known in full.

    Args:
        what: What was computed, for the message.
        got: The whole product.
        rows: Positions of the rows to check.
        weights: The matrix in those rows.
        x: What it was multiplied with.

    Raises:
        CheckError: If the error is above the budget.

    Shapes:
        - got, x: ``[B, H, L, D]``
        - rows: ``[r]``
        - weights: ``[B, H, r, L]``
    """
    with full_precision(x.device):
        plain = weights.to(x.dtype) @ x
        truth = weights.double() @ x.double()
    require_close(what, got[:, :, rows], plain, truth)
