"""Which backend is built, which is chosen, and what each is said to cost."""

import dataclasses
from itertools import product

import pytest
import torch

from jat_graph import JatConfig, PairGraph, jump_operator
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import MapScores
from jat_graph.jumps.operators.backends import (
    LARGEST_MATRIX,
    Workload,
    build_operator,
    choose_backend,
    prices_of,
    unsupported,
)
from jat_graph.operators import BlockedOperator, DenseOperator, SparseOperator, ThresholdOperator
from tests.inputs import random_heads

CAUSAL = TokenMask(causal=True)
PAIRS = TokenMask(pairs=torch.ones(1, 1, 4, 4, dtype=torch.bool))
WORK = Workload(graphs=4, length=64, num_keys=21, width=128)


def built(config, mask=TokenMask()):  # noqa: B008
    assert choose_backend(config, mask, WORK, "cpu").backend == config.graph.backend
    adjacency = PairAdjacency.of_scores(config, MapScores(torch.ones(1, 1, 4, 4)), mask)
    return build_operator(config, adjacency, config.graph.backend)


@pytest.mark.parametrize(
    ("backend", "mask", "operator"),
    [
        *product(["dense"], [TokenMask(), CAUSAL, PAIRS], [DenseOperator]),
        *product(["sparse"], [TokenMask(), CAUSAL, PAIRS], [SparseOperator]),
        ("threshold", TokenMask(), ThresholdOperator),
        ("threshold", CAUSAL, BlockedOperator),
    ],
)
def test_an_explicit_backend_is_built(backend, mask, operator):
    assert unsupported(backend, JatConfig(), mask) == []
    assert isinstance(built(JatConfig(PairGraph(backend=backend)), mask), operator)


@pytest.mark.parametrize(
    ("settings", "mask", "reasons"),
    [
        ({}, CAUSAL, []),
        ({"inclusive": True, "same_sign_only": True, "threshold": 0}, CAUSAL, []),
        ({}, PAIRS, ["padding and causal masks only"]),
        ({"soft_temperature": 1.0}, TokenMask(), ["soft votes need every pair"]),
    ],
)
def test_the_threshold_backend_says_every_reason_and_auto_goes_dense(settings, mask, reasons):
    found = unsupported("threshold", JatConfig.paper(**settings), mask)
    assert len(found) == len(reasons)
    for sentence, words in zip(found, reasons, strict=True):
        assert words in sentence
        assert "use 'dense'" in sentence
    if reasons:
        work = dataclasses.replace(WORK, length=10**5)
        choice = choose_backend(JatConfig.paper(**settings), mask, work, "cpu")
        assert choice.backend == "dense" and all(reason in choice.why for reason in found)


def test_an_explicit_backend_never_falls_back():
    config = JatConfig(
        PairGraph(backend="threshold", inclusive=True, same_sign_only=True, threshold=0.0)
    )
    with pytest.raises(ValueError, match=r"'threshold' cannot run: .*; .*use 'dense'") as caught:
        built(config, PAIRS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("causal", [False, True])
def test_auto_takes_the_cheaper_one_and_says_why(causal):
    mask = TokenMask(causal=causal)
    short = choose_backend(JatConfig(), mask, WORK, "cpu")
    work = dataclasses.replace(WORK, length=8000, num_keys=45, graphs=1, causal=causal)
    long = choose_backend(JatConfig(), mask, work, "cpu")
    assert short.backend == min(short.milliseconds, key=short.milliseconds.get) == "dense"
    assert long.backend == min(long.milliseconds, key=long.milliseconds.get)
    assert long.backend == ("dense" if causal else "threshold")
    assert "45 keys, 8000 tokens" in long.why and "measured on" in long.why
    assert "\n" not in str(long)


def test_a_matrix_that_is_too_large_is_not_made():
    length = int((LARGEST_MATRIX / 4) ** 0.5) + 1
    work = Workload(graphs=1, length=length, num_keys=10**6, width=10**6, causal=True)
    choice = choose_backend(JatConfig(), CAUSAL, work, "cpu")
    assert choice.milliseconds["dense"] < choice.milliseconds["threshold"]
    assert choice.backend == "threshold"
    assert "would take 2.0 GiB" in choice.why


@pytest.mark.parametrize(
    ("changes", "device", "backend", "words"),
    [
        ({"linked": 0.4}, "cpu", "dense", "by 'sparse' for 4096 columns of B"),
        ({"linked": 0.01}, "cpu", "sparse", "by 'dense' for 4096 columns of B"),
        ({"linked": 0.01, "num_keys": 128}, "cpu", "dense", "no wider than the 128 features"),
        ({"linked": 0.01}, "abacus", "dense", "no measured price on abacus"),
        ({"linked": 0.4, "graphs": 99}, "abacus", "sparse", "a dense B would take 3.1 GiB"),
        ({"linked": 0.4, "graphs": 99, "num_keys": 64}, "cpu", "dense", "no wider than"),
    ],
)
def test_stones_are_sparse_where_few_links_or_much_memory_are(changes, device, backend, words):
    work = Workload(graphs=1, length=2048, num_keys=4096, width=128, products=3)
    work = dataclasses.replace(work, **changes)
    choice = choose_backend(JatConfig.stones(), TokenMask(), work, device)
    assert (choice.backend, words in choice.why) == (backend, True)


@pytest.mark.parametrize("gradient", [False, True])
def test_an_operator_explains_its_backend(gradient):
    query, key, _, _ = random_heads(1, 2, 12, 8)
    query.requires_grad_(gradient)
    config = JatConfig(hop_weights=(0.0, 0.5, 0.5))
    operator, choice = jump_operator(query, key, config=config, explain=True)
    assert isinstance(operator.base, DenseOperator)
    assert choice.backend == "dense"
    assert f"{4 if gradient else 2} products of 16 features" in str(choice)


def test_a_device_without_measurements_says_so():
    prices, where = prices_of("abacus")
    assert prices == prices_of("cpu")[0]
    assert "no measurement for abacus" in where
