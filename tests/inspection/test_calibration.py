"""Thresholds from wanted densities: on random scores, and on the real model with real sentences."""

import itertools
import logging
import math
from typing import Any

import pytest
import torch

from jat_graph.hf import attach, attached_config, detach
from jat_graph.inspection import calibrate, graph_statistics
from jat_graph.jumps.config import JatConfig, PairGraph
from tests.inspection.support import random_batches, tiny_bert
from tests.support import captured_layers, layer_weights

CLUSTERS = JatConfig.clustered(dense_below=0, size=4, segment=16)
VARIANTS = [
    {},
    {"inclusive": True},
    {"same_sign_only": True},
    {"normalize_keys": True},
    {"key_selection": "significance", "key_factor": 1.5},
    {"key_selection": "sampled", "key_factor": 2.0, "same_sign_only": True},
    {"key_selection": "strided", "num_keys": 4, "normalize_keys": True, "inclusive": True},
    {"key_selection": "significance", "nodes": "selected", "key_factor": 3.0},
    {"hop_weights": {(0, 2): (0.0, 1.0), (3,): (0.5, 0.5)}},
    {"soft_temperature": 0.5},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(variant) or "plain")
def test_density_is_met_within_one_pair(variant: dict[str, Any], device: torch.device) -> None:
    model, batches = tiny_bert().to(device), random_batches(6)
    wanted = 0.1
    settings = {"heads": (0, 2, 3), "layers": (0, 2)} | variant
    config = calibrate(model, batches, density=wanted, config=JatConfig.paper(**settings))
    attach(model, config)
    statistics = graph_statistics(model, [*batches[:4], batches[5]])  # the fifth is held out
    assert [(s.layer, s.head) for s in statistics] == list(itertools.product((0, 2), (0, 2, 3)))
    for row in config.graph.threshold:
        assert all(0 < value < math.inf for value in row)
    for entry in statistics:
        # (i, k) and (k, i) are joined together: one pair is two of the ordered ones
        assert abs(entry.density * entry.pairs - wanted * entry.pairs) <= 2
        assert 0 < entry.mean_weight <= 1


def test_statistics_count_what_the_graph_holds() -> None:
    model, batches = tiny_bert(), random_batches(2)
    attach(model, JatConfig(PairGraph(threshold=10.0), heads=(1, 3), layers=(1,)))
    statistics = graph_statistics(model, batches)
    weights = [layer_weights(captured_layers(model, batch)[0]) for batch in batches]
    pairs = sum(n * (n - 1) for n in (12, 9, 6)) * 2
    for place, entry in enumerate(statistics):
        values = torch.cat([w[:, place].flatten() for w in weights])
        joined = values[values > 0]
        assert entry.pairs == pairs
        assert entry.density == pytest.approx(len(joined) / pairs)
        assert entry.mean_weight == pytest.approx(float(joined.mean()))
        assert 0.1 < entry.density < 0.9


def test_soft_votes_are_counted_hard() -> None:
    model, batches = tiny_bert(), random_batches(1)
    attach(model, JatConfig(PairGraph(threshold=4.0), layers=(0,)))
    hard = graph_statistics(model, batches)
    detach(model)
    attach(model, JatConfig(PairGraph(threshold=4.0, soft_temperature=2.0), layers=(0,)))
    assert graph_statistics(model, batches) == hard
    assert 0.1 < hard[0].density < 0.9


def test_a_quantile_below_zero_becomes_zero() -> None:
    model = tiny_bert()
    config = JatConfig(
        PairGraph(key_selection="significance", num_keys=1, same_sign_only=True), layers=(0,)
    )
    table = calibrate(model, random_batches(1), density=0.99, config=config).graph.threshold
    assert table == ((0.0,) * 4,)


def test_without_a_pair_the_threshold_is_infinite() -> None:
    model = tiny_bert()
    batch = {"input_ids": torch.tensor([[5], [6]])}
    config = calibrate(model, [batch])
    assert config.graph.threshold == ((math.inf,) * 4,) * 3
    attach(model, config)
    assert graph_statistics(model, [batch])[0].density == 0.0
    assert bool(model(**batch).last_hidden_state.isfinite().all())


def test_calibration_is_deterministic_and_leaves_labels_out() -> None:
    model, batches = tiny_bert(), random_batches(3)
    first = calibrate(model, batches, density=0.2)
    labelled = [batch | {"labels": torch.tensor([0, 1, 0])} for batch in batches]
    assert calibrate(model, iter(labelled), density=0.2) == first
    assert JatConfig.from_dict(first.to_dict()) == first


@pytest.mark.parametrize("before", [None, JatConfig(PairGraph(threshold=4.0), layers=(0,))])
@pytest.mark.parametrize("fails", [False, True])
def test_the_model_comes_back_as_it_was(before: JatConfig | None, fails: bool) -> None:
    model, batches = tiny_bert(), random_batches(2)
    if before is not None:
        attach(model, before)
    output = model(**batches[0]).last_hidden_state
    model.encoder.layer[0].train()
    names = {name: set(vars(module)) for name, module in model.named_modules()}
    if fails:
        broken = {"input_ids": torch.tensor([[401]])}
        with pytest.raises(IndexError):
            calibrate(model, [batches[0], broken, batches[1]])
    else:
        found = calibrate(model, batches).replace(threshold=6.0)
        assert found == (before or JatConfig()).replace(threshold=6.0)
    assert attached_config(model) == before
    assert [layer.training for layer in model.encoder.layer] == [True, False, False]
    assert {name: set(vars(module)) for name, module in model.named_modules()} == names
    assert torch.equal(model.eval()(**batches[0]).last_hidden_state, output)


def test_jump_heads_keep_what_they_learned() -> None:
    config = JatConfig(PairGraph(threshold=0.5), heads=2, strength="learned")
    model, batch = attach(tiny_bert(), config).eval(), random_batches(1)[0]
    base = model(**batch).last_hidden_state
    strengths = [s for name, s in model.named_parameters() if "strength" in name]
    for strength in strengths:
        strength.data.fill_(0.5)
    before = model(**batch).last_hidden_state
    assert not torch.allclose(before, base, atol=1e-3)
    found = calibrate(model, [batch], density=0.3)
    assert torch.equal(model(**batch).last_hidden_state, before)
    # Measured with the jumps of the layers below, as strong as they are.
    learned = model.state_dict()
    attach(detach(model), found).load_state_dict(learned)
    assert all(0.2 < head.density <= 0.3 for head in graph_statistics(model, [batch]))


@pytest.mark.parametrize(
    ("count", "held_out"), [(1, []), (2, [1]), (4, [3]), (5, [4]), (11, [4, 9])]
)
def test_every_fifth_batch_is_held_out(count, held_out, caplog):
    model, batches = tiny_bert(), random_batches(count)
    batches = [b if n in held_out else batches[0] for n, b in enumerate(batches)]
    settings = JatConfig(layers=(0,))
    with caplog.at_level(logging.INFO, logger="jat_graph"):
        config = calibrate(model, batches, density=0.2, config=settings)
    assert len(caplog.records) == 1 + bool(held_out)
    assert config == calibrate(model, batches[:1], density=0.2, config=settings)


@pytest.mark.parametrize(("density", "level"), [(0.3, "INFO"), (0.001, "WARNING")])
def test_a_density_that_is_far_off_is_a_warning(density, level, caplog):
    one, two = random_batches(2)
    other = {"input_ids": two["input_ids"][:, :2]}  # its one pair is joined, or it is not
    with caplog.at_level(logging.INFO, logger="jat_graph"):
        calibrate(tiny_bert(), [one, one if level == "INFO" else other], density=density)
    assert caplog.records[-1].levelname == level


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"density": 0.0}, "density must"),
        ({"density": "a"}, "density must"),
        ({"density": math.nan}, "density must"),
        ({"batches": []}, "batches must"),
        ({"batches": [torch.zeros(1)]}, "batches must"),
        ({"config": JatConfig(PairGraph(vote_rate=0.1))}, "vote_rate must"),
        ({"config": JatConfig.stones()}, "graph must"),
        ({"config": CLUSTERS, "tolerance": 0}, "tolerance must be above 0"),
        ({"config": CLUSTERS, "tolerance": "a"}, "tolerance must be a number"),
        ({"config": CLUSTERS, "density": 0.1}, "density needs graph=.pairs., got .clusters."),
        ({"config": JatConfig(), "tolerance": 0.1}, "tolerance needs graph=.clusters., got .pairs"),
        ({"tolerance": 0.1, "batches": []}, "batches must"),
    ],
)
def test_bad_input_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate(**({"model": tiny_bert(), "batches": random_batches(1)} | arguments))
    with pytest.raises(ValueError, match="must have jump heads"):
        graph_statistics(tiny_bert(), random_batches(1))
