"""Layers of a model run one after the other, each on all batches before the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from jat_graph.hf import CapturedLayer
from jat_graph.hf.capture import modules_with
from jat_graph.hf.heads import AttachedHeads
from jat_graph.hf.jumps import AttachedJumps
from jat_graph.hf.modules import layers_around
from jat_graph.looking.inspection.tracing import Inputs, run_model


class Relay:
    """Runs batches up to one layer after another, each from where it came the last time."""

    # The layers are those with heads of one kind, none of which may differ from ordinary ones yet.
    # What a layer gave stands for all layers before it. Where the first batch shows that layers are
    # no chain, as where they share a module, every run goes through the whole model.

    def __init__(
        self,
        model: PreTrainedModel,
        batches: Sequence[Inputs],
        kind: type[AttachedHeads] = AttachedJumps,
    ) -> None:
        self.model, self.batches, self.kind = model, batches, kind
        self._given: list[Any] = [None] * len(batches)  # what the layers before gave
        whole = self._run(batches[0])
        self.heads = [(layer.layer, layer.heads) for layer in whole]
        self.causal = [layer.mask.causal for layer in whole]
        self._chain, self._rows = _find_chain(model, kind, len(whole))
        if self._chain:
            found = [self._capture(row, 0, batches[0]) for row in range(len(whole))]
            self._given[0] = None
            for a, b in zip(found, whole, strict=True):
                same = torch.equal(a.query, b.query) and torch.equal(a.key, b.key)
                if a.layer != b.layer or not same:
                    self._chain = []

    def captured(self, row: int) -> Iterator[CapturedLayer]:
        """Yield what a layer sees of each batch, in order, once those before are final."""
        for number, batch in enumerate(self.batches):
            yield self._capture(row, number, batch)

    def _capture(self, row: int, number: int, batch: Inputs) -> CapturedLayer:
        if not self._chain:
            return self._run(batch)[row]
        first, last = self._rows[row - 1] if row else 0, self._rows[row]
        with _running(self._chain, first, last, self._given[number]) as latest:
            *_, layer = self._run(batch)
        self._given[number] = latest[0]
        return layer

    def _run(self, batch: Inputs) -> list[CapturedLayer]:
        return run_model(self.model, batch, kind=self.kind)[1]


@contextmanager
def _running(chain: list[nn.Module], first: int, last: int, given: Any) -> Iterator[list[Any]]:
    """Let layers run only from the first to the last; others hand on what there is."""
    latest = [given, given]  # what the last layer that ran was given, and what it gave

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


def _find_chain(
    model: PreTrainedModel, kind: type[AttachedHeads], rows: int
) -> tuple[list[nn.Module], list[int]]:
    """Return the layers of the list in which all those layers are, and where these are in it."""
    jumping = sorted(modules_with(model, kind), key=lambda entry: entry[1].index)
    around = layers_around(model, [module for module, _ in jumping])
    for part in model.modules():
        if isinstance(part, nn.ModuleList) and len(around) == rows and set(around) <= set(part):
            chain = list(part)
            if not any("forward" in vars(layer) for layer in chain):  # as accelerate puts there
                return chain, [chain.index(layer) for layer in around]
    return [], []
