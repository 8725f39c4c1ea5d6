"""A model run from one jump layer to the next, so that layers below are not run over again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from jat_graph.hf import CapturedLayer
from jat_graph.hf.capture import jumping_modules
from jat_graph.hf.modules import layers_around
from jat_graph.inspection.tracing import Inputs, run_model


class Relay:
    """Runs batches up to one jump layer after another, each from where it came the last time.

    What a layer gave stands for all layers before it, so that those need not run. That is right
    where layers are a chain; where the first batch shows that they are none, as in models whose
    layers share a module, every run goes through the whole model. None of the model's jump heads
    may jump yet.
    """

    def __init__(self, model: PreTrainedModel, batches: Sequence[Inputs]) -> None:
        self.model, self.batches = model, batches
        self._given: list[Any] = [None] * len(batches)  # what the layers before gave
        _, whole = run_model(model, batches[0], jumps=True)
        self.heads = [(layer.layer, layer.heads) for layer in whole]
        self._chain, self._rows = _find_chain(model, len(whole))
        if self._chain:
            found = [self._capture(row, 0, batches[0]) for row in range(len(whole))]
            self._given[0] = None
            if not all(
                a.layer == b.layer and torch.equal(a.query, b.query) and torch.equal(a.key, b.key)
                for a, b in zip(found, whole, strict=True)
            ):
                self._chain = []

    def captured(self, row: int) -> Iterator[CapturedLayer]:
        """Yield what the jump layer in a row sees of each batch; rows are taken in order.

        The settings of the rows before must be final.
        """
        for number, batch in enumerate(self.batches):
            yield self._capture(row, number, batch)

    def _capture(self, row: int, number: int, batch: Inputs) -> CapturedLayer:
        if not self._chain:
            return run_model(self.model, batch, jumps=True)[1][row]
        first, last = self._rows[row - 1] if row else 0, self._rows[row]
        with _running(self._chain, first, last, self._given[number]) as latest:
            _, (*_, layer) = run_model(self.model, batch, jumps=True)
        self._given[number] = latest[0]
        return layer


@contextmanager
def _running(chain: list[nn.Module], first: int, last: int, given: Any) -> Iterator[list[Any]]:
    """Let layers run only from the first to the last; others hand on what there is.

    What the last layer was given is the first entry then, what it gave the second.
    """
    latest = [given, given]

    def forward(index: int, own: Any, *args: Any, **kwargs: Any) -> Any:
        if first <= index <= last:
            latest[:] = latest[1], own(*args, **kwargs)
        return latest[1]

    for index, layer in enumerate(chain):
        layer.forward = partial(forward, index, layer.forward)
    try:
        yield latest
    finally:
        for layer in chain:
            del layer.forward


def _find_chain(model: PreTrainedModel, rows: int) -> tuple[list[nn.Module], list[int]]:
    """Return the layers of the list in which all jump layers are, and where these are in it."""
    jumping = sorted(jumping_modules(model), key=lambda entry: entry[1].index)
    around = layers_around(model, [module for module, _ in jumping])
    for part in model.modules():
        if isinstance(part, nn.ModuleList) and len(around) == rows and set(around) <= set(part):
            chain = list(part)
            if not any("forward" in vars(layer) for layer in chain):  # as accelerate puts there
                return chain, [chain.index(layer) for layer in around]
    return [], []
