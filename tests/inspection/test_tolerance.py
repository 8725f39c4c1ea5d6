"""Clusters from a wanted tolerance: the cheapest that keep it, or none."""

import logging
import math
import re
from typing import Any

import pytest
import torch

import jat_graph
from jat_graph import ClusterGraph, JatConfig
from jat_graph.hf import attached_config
from tests.hf.models import tiny_model
from tests.inspection.support import long_bert, padded_batch

LENGTH = 160
LADDER = (8, 16, 32, 64, 128, 256, 512)  # keys
BASE = JatConfig.clustered(dense_below=0, size=4, segment=16)


def batches(count: int, lengths: tuple[int, ...] = (LENGTH, LENGTH)) -> list[dict[str, Any]]:
    return [padded_batch(lengths, seed) for seed in range(count)]


def rungs(config: JatConfig) -> list[list[Any]]:
    """Return the keys of each layer and head; None for a dense one."""
    graph: Any = config.graph
    return [
        [None if below == math.inf else own for own, below in zip(row, dense, strict=True)]
        for row, dense in zip(graph.keys, graph.dense_below, strict=True)
    ]


def logged_errors(caplog: pytest.LogCaptureFixture) -> dict[str, tuple[float, float]]:
    """Return the mean and the largest error on used and on held-out batches."""
    line = re.compile(r"error on (\S+) batches: mean ([\d.]+), at most ([\d.]+)")
    found = (line.match(record.getMessage()) for record in caplog.records)
    return {m[1]: (float(m[2]), float(m[3])) for m in found if m is not None}


@pytest.mark.parametrize("tolerance", [0.2, 0.07])
def test_the_cheapest_rung_within_the_tolerance_is_taken(tolerance: float) -> None:
    model, used = long_bert(1), batches(1)
    (taken,) = rungs(jat_graph.calibrate(model, used, tolerance=tolerance, config=BASE))
    reports = {keys: jat_graph.fidelity(model, used, BASE.replace(keys=keys)) for keys in LADDER}
    for head, own in enumerate(taken):
        costs: dict[Any, float] = {None: 1.0}
        for keys, report in reports.items():
            if report.heads[head].error <= tolerance:
                costs[keys] = report.heads[head].share
        assert own == min(costs, key=lambda keys: costs[keys])
    assert len(set(taken)) > 1


def test_the_tolerance_is_kept_with_the_layers_below_as_chosen(caplog):
    model, used = long_bert(3), batches(2, (LENGTH, 90))
    with caplog.at_level(logging.INFO, logger="jat_graph"):
        config = jat_graph.calibrate(model, [*used, used[0]], tolerance=0.1, config=BASE)
    mean, most = logged_errors(caplog)["used"]
    assert 0.03 < mean < most <= 0.1
    assert [len(row) for row in rungs(config)] == [4, 4, 4]


def test_a_layer_is_measured_on_what_those_below_give(caplog: pytest.LogCaptureFixture) -> None:
    model, used = long_bert(2), batches(1)
    seen: list[torch.Tensor] = []
    module = model.encoder.layer[1].attention.self
    hook = module.register_forward_pre_hook(lambda module, args: seen.append(args[0].clone()))
    config = jat_graph.calibrate(model, used, tolerance=0.15, config=BASE)
    hook.remove()
    rows = {name: getattr(config.graph, name)[:1] for name in ("keys", "dense_below")}
    below = jat_graph.attach(model, BASE.replace(layers=(0,), **rows))
    with torch.no_grad():
        given = below(**used[0], output_hidden_states=True).hidden_states[1]
        own = jat_graph.detach(model)(**used[0], output_hidden_states=True).hidden_states[1]
    assert torch.equal(seen[-2], given)  # the last is of the log
    assert not torch.equal(given, own)


def test_a_head_that_none_serve_is_dense(caplog: pytest.LogCaptureFixture) -> None:
    model, used = long_bert(), batches(1)
    config = jat_graph.calibrate(model, used, tolerance=1e-9)
    assert rungs(config) == [[None] * 4] * 2
    before = model(**used[0]).last_hidden_state
    assert torch.equal(jat_graph.attach(model, config)(**used[0]).last_hidden_state, before)
    # Nor is anything cheaper where everything would be read.
    short = jat_graph.calibrate(long_bert(), batches(1, (9, 8)), tolerance=0.5)
    assert rungs(short) == [[None] * 4] * 2 and caplog.text.count("8 of them dense") == 2


def test_the_config_says_from_where_on_and_is_saved() -> None:
    model, used = long_bert(), batches(1)
    base = BASE.replace(dense_below=None)
    config = jat_graph.calibrate(model, used, tolerance=0.1, config=base)
    assert {x for row in config.graph.dense_below for x in row} == {None}
    assert JatConfig.from_dict(config.to_dict()) == config
    base = base.replace(dense_below=300, propagate=False)
    other = jat_graph.calibrate(model, used, tolerance=0.2, config=base)
    assert {x for row in other.graph.dense_below for x in row} == {300}
    assert other.graph.propagate is False
    again = jat_graph.calibrate(jat_graph.attach(model, config), used, tolerance=0.1)
    assert again == config
    assert attached_config(model, ClusterGraph) == config
    assert " keys, 16 groups, dense below a" in jat_graph.summary(model)


def test_a_held_out_error_above_the_tolerance_is_a_warning(caplog):
    (one,), (longer,) = batches(1), batches(1, (256, 256))
    for held_out, level in ((one, "INFO"), (longer, "WARNING")):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="jat_graph"):
            jat_graph.calibrate(long_bert(), [one, held_out], tolerance=0.06, config=BASE)
        assert [record.levelname for record in caplog.records] == ["INFO", level]
        found = logged_errors(caplog)
        assert (found["held-out"][0] > 0.06) == (level == "WARNING")
        assert (found["held-out"] == found["used"]) == (held_out is one)


def test_an_encoder_and_its_decoder_are_served() -> None:
    used = [{"input_ids": torch.randint(3, 40, (2, 60))}]
    config = jat_graph.calibrate(tiny_model("bart"), used, tolerance=0.5, config=BASE)
    graph: Any = config.graph
    assert [len(row) for row in graph.keys] == [4] * 4  # those of the encoder, then the decoder's
    jat_graph.attach(tiny_model("bart"), config)
