import logging

import pytest
import torch

from jat_graph import JatConfig
from jat_graph.ballot import open_ballot
from jat_graph.masks import TokenMask
from jat_graph.operators import (
    DenseOperator,
    SparseOperator,
    ThresholdOperator,
    build_operator,
    choose_backend,
    unsupported,
)
from jat_graph.operators.choice import THRESHOLD_COST
from jat_graph.scores import MapScores

PAIRS = TokenMask(pairs=torch.ones(1, 1, 4, 4, dtype=torch.bool))


def built(config, mask=TokenMask(), length=4, features=2):  # noqa: B008
    ballot = open_ballot(config, MapScores(torch.ones(1, 1, length, length)), mask)
    return build_operator(config, ballot, features)


@pytest.mark.parametrize(
    ("backend", "operator"),
    [("dense", DenseOperator), ("sparse", SparseOperator), ("threshold", ThresholdOperator)],
)
def test_an_explicit_backend_is_built(backend, operator):
    assert isinstance(built(JatConfig(backend=backend)), operator)


@pytest.mark.parametrize("mask", [TokenMask(causal=True), PAIRS])
@pytest.mark.parametrize("backend", ["dense", "sparse"])
def test_dense_and_sparse_take_every_mask(backend, mask):
    assert unsupported(backend, JatConfig(), mask) == []
    built(JatConfig(backend=backend), mask)


@pytest.mark.parametrize(
    ("settings", "mask", "reasons"),
    [
        ({}, TokenMask(), []),
        ({}, TokenMask(causal=True), ["under a causal mask"]),
        ({}, PAIRS, ["padding masks only"]),
        ({"inclusive": True, "same_sign_only": True}, TokenMask(), []),
        ({"inclusive": True, "same_sign_only": True, "threshold": 0}, TokenMask(), ["no prefix"]),
        ({"inclusive": True, "threshold": 0}, TokenMask(), []),
        (
            {"inclusive": True, "same_sign_only": True, "vote_rate": 0.1},
            TokenMask(causal=True, pairs=PAIRS.pairs),
            ["under a causal mask", "padding masks only", "no prefix"],
        ),
        ({"soft_temperature": 1.0}, TokenMask(), ["soft votes need every pair"]),
    ],
)
def test_the_threshold_backend_says_every_reason(settings, mask, reasons):
    found = unsupported("threshold", JatConfig(**settings), mask)
    assert len(found) == len(reasons)
    for sentence, words in zip(found, reasons, strict=True):
        assert words in sentence
        assert "use 'dense'" in sentence


def test_an_explicit_backend_never_falls_back():
    config = JatConfig(backend="threshold", inclusive=True, same_sign_only=True, threshold=0.0)
    mask = TokenMask(causal=True, pairs=PAIRS.pairs)
    with pytest.raises(
        ValueError, match=r"'threshold' cannot run: .*; .*; .*use 'dense'"
    ) as caught:
        built(config, mask)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("features", [1, 3])
def test_auto_takes_the_cheaper_one(features, caplog):
    border = THRESHOLD_COST * features
    assert choose_backend(JatConfig(), TokenMask(), border, features)[0] == "dense"
    assert choose_backend(JatConfig(), TokenMask(), border + 1, features)[0] == "threshold"
    with caplog.at_level(logging.DEBUG, logger="jat_graph"):
        operator = built(JatConfig(), length=border + 1, features=features)
    assert isinstance(operator, ThresholdOperator)
    assert f"backend threshold: {border + 1} votes" in caplog.text


@pytest.mark.parametrize(
    ("settings", "mask"), [({}, TokenMask(causal=True)), ({"soft_temperature": 1.0}, TokenMask())]
)
def test_auto_goes_dense_where_threshold_cannot_run_and_says_why(settings, mask):
    backend, why = choose_backend(JatConfig(**settings), mask, 10**5, 1)
    assert backend == "dense"
    assert why in unsupported("threshold", JatConfig(**settings), mask)
