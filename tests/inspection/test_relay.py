"""Runs from layer to layer: they show what whole runs show, of all architectures."""

import math
from collections import Counter

import pytest
import torch

from jat_graph.config import JatConfig, PairGraph
from jat_graph.hf import attach
from jat_graph.hf.adapter import attach_again
from jat_graph.inspection.calibration import Relay
from jat_graph.inspection.tracing import run_model
from tests.hf.models import LENGTH, TEXT, THRESHOLD, tiny_config, tiny_inputs, tiny_model
from tests.inspection.test_calibration import random_batches, tiny_bert


@pytest.mark.parametrize("name", TEXT)
def test_every_layer_sees_what_a_whole_run_shows(name: str) -> None:
    model, batches = tiny_model(name), [tiny_inputs(name), tiny_inputs(name, (LENGTH, LENGTH - 3))]
    closed = tiny_config().replace(threshold=math.inf)
    relay = Relay(attach(model, closed), batches)
    numbers = tuple(layer for layer, _ in relay.heads)
    for row, _ in enumerate(numbers):
        # The rows before jump now.
        table = (*((THRESHOLD,) * 2 for _ in numbers[:row]), (math.inf,) * 2)
        layers = None if row == len(numbers) - 1 else numbers[: row + 1]
        attach_again(model, closed.replace(threshold=table, layers=layers), {})
        for batch, part in zip(batches, relay.captured(row), strict=True):
            whole = run_model(model, batch, jumps=True)[1][row]
            assert part.layer == whole.layer == numbers[row]
            torch.testing.assert_close(part.query, whole.query, rtol=0, atol=0)
            torch.testing.assert_close(part.key, whole.key, rtol=0, atol=0)


def test_no_layer_runs_more_than_twice_for_a_batch() -> None:
    model, batches = tiny_bert(), random_batches(3)
    runs: Counter[int] = Counter()
    for place, layer in enumerate(model.encoder.layer):
        layer.attention.self.register_forward_hook(lambda *_, place=place: runs.update([place]))
    attach(model, JatConfig(PairGraph(threshold=math.inf)))
    relay = Relay(model, batches)
    runs.clear()
    for row in range(3):
        assert len(list(relay.captured(row))) == 3
    assert runs == {0: 6, 1: 6, 2: 3}


def test_layers_that_are_no_chain_run_whole() -> None:
    """What the first layer gives goes around two others, as in no model of transformers."""
    model, (batch,) = tiny_bert(layers=4), random_batches(1)
    given = []
    first, _, _, last = model.encoder.layer
    first.register_forward_hook(lambda module, args, output: given.append(output))
    last.register_forward_pre_hook(lambda module, args: (args[0] + given[-1], *args[1:]))
    attach(model, JatConfig(PairGraph(threshold=math.inf)))
    whole, relay = run_model(model, batch, jumps=True)[1], Relay(model, [batch])
    for row, layer in enumerate(whole):
        (part,) = relay.captured(row)
        assert torch.equal(part.query, layer.query)
