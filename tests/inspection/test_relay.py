"""Calibration goes from layer to layer, and sees what whole runs show, of all architectures."""

import math
from collections import Counter

import pytest
import torch

from jat_graph import JatConfig, PairGraph, attach, calibrate, detach
from tests.hf.models import LENGTH, TEXT, tiny_config, tiny_inputs, tiny_model
from tests.inspection.support import random_batches, tiny_bert
from tests.support import captured_layers

DENSITY = 0.3


def critical_products(layer):
    """The largest product of each pair of a layer's first head, by its definition: [pairs]."""
    scores = layer.scale * layer.query[:, 0] @ layer.key[:, 0].mT
    allowed = torch.ones_like(scores, dtype=torch.bool)
    seen = layer.mask.allowed(scores.size(-1), scores.device)
    if seen is not None:
        allowed &= seen[:, 0]
    products = scores[:, :, None] * scores[:, None]
    products = products.masked_fill(~(allowed[:, :, None] & allowed[:, None]), -math.inf).amax(-1)
    return products[allowed & ~torch.eye(scores.size(-1), dtype=torch.bool)]


def assert_is_that_of_whole_runs(config, model, batches):
    """Compare a table with the quantiles of whole runs, in which the layers before jump."""
    layers = [layer.layer for layer in captured_layers(attach(model, config), batches[0])]
    table = config.graph.threshold
    assert len(table) == len(layers)
    for row, found in enumerate(table):
        here = None if row == len(table) - 1 else tuple(layers[: row + 1])
        closed = (*table[:row], (math.inf,) * len(found))
        attach(detach(model), config.replace(threshold=closed, layers=here))
        parts = [critical_products(captured_layers(model, batch)[row]) for batch in batches]
        values = torch.cat(parts).sort().values
        wanted = values[math.ceil((1 - DENSITY) * len(values)) - 1]
        assert found[0] == pytest.approx(max(0.0, float(wanted)), rel=1e-5)


@pytest.mark.parametrize("name", TEXT)
def test_every_layer_is_measured_as_in_a_whole_run(name: str) -> None:
    used = [tiny_inputs(name), tiny_inputs(name, (LENGTH, LENGTH - 3))]
    config = calibrate(
        tiny_model(name), [*used, used[0]], density=DENSITY, config=tiny_config()
    )  # the third batch is held out
    assert_is_that_of_whole_runs(config, tiny_model(name), used)


def test_no_layer_runs_more_than_twice_for_a_batch() -> None:
    model, runs = tiny_bert(layers=6), Counter()
    for place, layer in enumerate(model.encoder.layer):
        layer.attention.self.register_forward_hook(lambda *_, place=place: runs.update([place]))
    calibrate(model, random_batches(5))
    # Four batches twice; the first of them three times more, to find the layers; then all once.
    assert max(runs.values()) <= 4 * 2 + 3 + 5


def test_layers_that_are_no_chain_run_whole() -> None:
    """What the first layer gives goes around two others, as in no model of transformers."""
    model, batches = tiny_bert(layers=4), random_batches(1)
    given = []
    first, _, _, last = model.encoder.layer
    first.register_forward_hook(lambda module, args, output: given.append(output))
    last.register_forward_pre_hook(lambda module, args: (args[0] + given[-1], *args[1:]))
    config = calibrate(model, batches, density=DENSITY, config=JatConfig(PairGraph(), heads=1))
    assert_is_that_of_whole_runs(config, model, batches)
