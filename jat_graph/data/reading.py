"""What is read off a model for each text: states of a layer, and what chosen heads join."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data

from jat_graph.checks.numbers import check_choice, check_integer, check_number, is_integer
from jat_graph.data.edges import build_graph, pool_words
from jat_graph.data.texts import EncodedTexts
from jat_graph.hf import CapturedLayer, attached_config, capture_scores
from jat_graph.hf.modules import attention_modules, serves_several_layers
from jat_graph.inspection.graphs import layer_graph
from jat_graph.inspection.tracing import evaluating, model_inputs

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Head: TypeAlias = tuple[int, int]  # layer and head

NODES = ("tokens", "words")
EDGES = ("attention", "jumps")


@dataclass(frozen=True)
class Reading:
    """What to read, and what to keep of it."""

    nodes: str
    edges: str
    heads: tuple[Head, ...]
    layer: int
    min_weight: float
    max_neighbors: int | None

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        nodes: str,
        edges: str,
        heads: Sequence[Head] | None,
        layer: int,
        min_weight: float,
        max_neighbors: int | None,
    ) -> Reading:
        """Check settings against a model."""
        check_choice("nodes", nodes, NODES)
        check_choice("edges", edges, EDGES)
        check_model(model)
        known = attention_heads(model) if edges == "attention" else jump_heads(model)
        depth = model.config.num_hidden_layers
        check_integer("layer", layer, least=-depth - 1, below=depth + 1)
        check_number("min_weight", min_weight, least=0.0)
        if max_neighbors is not None:
            check_integer("max_neighbors", max_neighbors, least=1)
        chosen = known if heads is None else _check_heads(heads, known, edges)
        return cls(nodes, edges, chosen, layer, float(min_weight), max_neighbors)

    def graphs(
        self, model: PreTrainedModel, texts: EncodedTexts, rows: Sequence[int], batch_size: int
    ) -> Iterator[Data]:
        """Yield the graph of each text."""
        with evaluating(model), torch.no_grad():
            for some in texts.batches(rows, batch_size):
                yield from self._batch(model, texts, some)

    def _batch(
        self, model: PreTrainedModel, texts: EncodedTexts, rows: Sequence[int]
    ) -> Iterator[Data]:
        """Yield the graph of each text of a batch; nothing else of it is there after that."""
        hidden, maps = self._run(model, texts.inputs_of(rows))
        for place, row in enumerate(rows):
            own = torch.stack([maps[head][place] for head in self.heads])  # [C, n, n]
            yield self._graph(hidden[place], own, texts, row)

    def _run(
        self, model: PreTrainedModel, batch: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[Head, Tensor]]:  # [B, L, D], [B, L, L] of each head
        """Run the model."""
        options = {"output_hidden_states": True, "output_attentions": self.edges == "attention"}
        inputs = model_inputs(model, batch) | options
        if self.edges == "attention":
            outputs = model(**inputs)
            rows = outputs.attentions
            if not rows or any(row is None for row in rows):
                raise ValueError(
                    "model must give attention probabilities, got none: "
                    "load it with attn_implementation='eager'"
                )
            maps = {(layer, head): rows[layer][:, head] for layer, head in self.heads}
        else:
            with capture_scores(model) as layers:
                outputs = model(**inputs)
            maps = self._jumps(layers)
        hidden = outputs.hidden_states[self.layer]
        return hidden.to(torch.promote_types(hidden.dtype, torch.float32)), maps

    def _jumps(self, layers: list[CapturedLayer]) -> dict[Head, Tensor]:  # [B, L, L] of each head
        wanted = {layer for layer, _ in self.heads}
        weights = {own.layer: layer_graph(own).weights for own in layers if own.layer in wanted}
        places = {own.layer: own.heads.index for own in layers}
        return {(layer, head): weights[layer][:, places[layer](head)] for layer, head in self.heads}

    def _graph(self, hidden: Tensor, maps: Tensor, texts: EncodedTexts, row: int) -> Data:
        """Return the graph of one text, on the CPU, with the ids of its nodes."""
        maps = maps.to(hidden.dtype)
        if texts.words is None:
            ids = {"input_ids": torch.tensor(texts.inputs["input_ids"][row])}
        else:
            words = torch.tensor(texts.words[row], device=hidden.device)
            hidden, maps, numbers = pool_words(hidden, maps, words)
            ids = {"word_ids": numbers}
        graph = build_graph(hidden, maps, self.min_weight, self.max_neighbors)
        return graph.update(ids).cpu()


def check_model(model: Any) -> None:
    """Refuse what is no model of one stack of layers."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model must be a model of transformers, got {type(model).__name__}")
    if model.config.is_encoder_decoder:
        raise ValueError(
            f"model must be one stack of layers, got a {type(model).__name__}: give its encoder"
        )


def attention_heads(model: PreTrainedModel) -> tuple[Head, ...]:
    """All heads of a model."""
    layers, heads = (
        getattr(model.config, f"num_{name}", 0) for name in ("hidden_layers", "attention_heads")
    )
    if not heads:
        raise ValueError(f"model must have attention heads, got a {type(model).__name__} without")
    return tuple((layer, head) for layer in range(layers) for head in range(heads))


def jump_heads(model: PreTrainedModel) -> tuple[Head, ...]:
    """The heads of a model that jump, if it has some."""
    config = attached_config(model)
    if config is None:
        raise ValueError("model must have jump heads for edges='jumps', got none: attach them")
    modules = [entry for entry in attention_modules(model) if entry.left_alone is None]
    if serves_several_layers(modules):
        raise ValueError("edges must be 'attention' where layers share a module, got 'jumps'")
    return tuple(
        (layer, head)
        for layer in config.layer_indices(len(modules))
        for head in config.head_indices(modules[layer].num_heads)
    )


def _check_heads(heads: Sequence[Head], known: tuple[Head, ...], edges: str) -> tuple[Head, ...]:
    """Return pairs of layer and head, of those that there are."""
    if not isinstance(heads, Sequence) or not heads:
        raise ValueError(f"heads must be one or more pairs (layer, head), got {heads!r}")
    for pair in heads:
        if not isinstance(pair, Sequence) or len(pair) != 2 or not all(map(is_integer, pair)):
            raise ValueError(f"heads must be pairs (layer, head), got {pair!r} among them")
        if tuple(pair) not in known:
            kind = "heads" if edges == "attention" else "jump heads"
            raise ValueError(f"heads must name {kind} of the model, got {tuple(pair)}")
    chosen = tuple((layer, head) for layer, head in heads)
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"heads must not name a head twice, got {heads!r}")
    return chosen
