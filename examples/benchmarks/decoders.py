"""Clusters in causal order: heads, decoders with their caches, and what stands beside these."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from torch.utils._pytree import tree_leaves

from examples.benchmarks import clusters, measure
from examples.benchmarks.inputs import DIM, HEADS, Heads, draw_heads
from examples.benchmarks.measure import Outcome, Settings, agree
from examples.benchmarks.models import LLAMA, random_batch, widen
from jat_graph import ClusterGraph, clustered_attention
from jat_graph.adjacency.clusters import causal_landmarks
from jat_graph.inspection.cluster_rows import Sequence, cluster_rows

# Of SmolLM2-135M, which shares each head of keys among three of queries, 4 of its 30 layers.
SHAPES: dict[str, dict[str, Any]] = {"Llama": LLAMA, "SmolLM2": {"num_hidden_layers": 4}}
SHAPES["SmolLM2"] |= {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536}
SHAPES["SmolLM2"] |= {"num_attention_heads": 9, "num_key_value_heads": 3}
CHECKED, EVERY = 2048, 31  # tokens in which every so many must be the formula
NEW = 64  # tokens at a time, a whole block
OURS = partial(clustered_attention, is_causal=True)


def head(length: int, settings: Settings, training: bool = False) -> Outcome:
    """Some heads, forward or with backward, against SDPA."""
    heads = draw_heads(length, HEADS, settings)
    first = Heads(*(x[:, :, :CHECKED] for x in heads))
    clusters.check(first, training, lambda *x: OURS(*x, dense_below=0)[:, :, ::EVERY], by_formula)
    theirs = partial(F.scaled_dot_product_attention, is_causal=True)
    sides = (partial(clusters.run, attend, heads, training) for attend in (OURS, theirs))
    return measure.in_turns(*sides, settings)


def by_formula(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return softmax(S') V of some tokens, each of which chooses anew from those before it."""
    sequence = Sequence(*(x[0].float() for x in (query, key, value)), DIM**-0.5, causal=True)
    tokens = torch.arange(0, query.size(2), EVERY, device=query.device).expand(query.size(1), -1)
    (rule,) = ClusterGraph(dense_below=0).rules(1)
    return (cluster_rows(sequence, rule, tokens).given @ sequence.value)[None]


class Reader:
    """A decoder with random weights that reads a prompt, and tokens of it after that."""

    def __init__(self, length: int, settings: Settings, shape: str, name: str) -> None:
        torch.manual_seed(0)
        positions = {"max_position_embeddings": 2 * length}
        config = transformers.LlamaConfig(**SHAPES[shape], **positions, attn_implementation=name)
        model = widen(transformers.LlamaForCausalLM(config)).eval()
        self.model: Any = model.to(settings.device, settings.dtype)
        self.tokens = random_batch(1, length, config.vocab_size, settings.device)["input_ids"]
        self.cache: Any = None

    @torch.inference_mode()
    def read(self, tokens: Tensor) -> Tensor:
        """Read tokens, and return what comes next."""
        options = {"past_key_values": self.cache, "use_cache": True, "logits_to_keep": 1}
        outputs = self.model(tokens, **options)
        self.cache = outputs.past_key_values
        return outputs.logits

    def prefill(self) -> Tensor:
        """Read the whole prompt with a new cache."""
        self.cache = None
        return self.read(self.tokens)

    def go_on(self) -> float:
        """Return the seconds that a new token takes, the mean over those of a block."""
        start = time.perf_counter()
        for token in self.tokens[:, :NEW].split(1, dim=1):
            self.read(token).argmax().item()
        return (time.perf_counter() - start) / NEW


def readers(length: int, settings: Settings, shape: str) -> list[Reader]:
    """A decoder by clusters and on SDPA, each of which must read a prompt in parts as at once."""
    both = [Reader(length, settings, shape, name) for name in ("clustered", "sdpa")]
    for reader in both:
        reader.read(reader.tokens[:, :-2])
        reader.read(reader.tokens[:, -2:-1])
        agree(reader.read(reader.tokens[:, -1:]), reader.prefill())
    return both


def prefill(length: int, settings: Settings, shape: str) -> Outcome:
    """A prompt into a cache, by clusters against SDPA."""
    sides = [reader.prefill for reader in readers(length, settings, shape)]
    return measure.in_turns(*sides, settings, heavy=True)


def new_token(length: int, settings: Settings, shape: str) -> Outcome:
    """A new token after a prompt, the cache growing on, and the bytes that are read of it."""
    sides = readers(length, settings, shape)
    taken = [[side.go_on() for side in sides] for _ in range(settings.repeats + 1)]
    config, size = sides[0].model.config, settings.dtype.itemsize
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    (rule,) = ClusterGraph().rules(1)
    shared = config.num_key_value_heads * (rule.block + NEW // 2)  # keys near a token, on average
    landmarks = len(causal_landmarks(length, torch.device("cpu")))
    rows = (shared + heads * rule.keys) * 2 * size + heads * landmarks * 4  # of so many bytes
    facts = {"read_bytes": layers * rows * config.head_dim, "their_read_bytes": cached(sides[1])}
    return measure.outcome(*zip(*taken[1:], strict=True), **facts)


def state(length: int, settings: Settings, shape: str) -> Outcome:
    """The bytes of what stands beside a cache, against those of the cache."""
    reader = Reader(length, settings, shape, "clustered")
    reader.prefill()
    reader.go_on()
    held = tree_leaves([vars(layer.past) for layer in reader.cache.layers])
    found = [x.untyped_storage() for x in held if isinstance(x, Tensor)]
    beside = sum({each.data_ptr(): each.nbytes() for each in found}.values())
    return measure.outcome([beside], [cached(reader)])


def cached(reader: Reader) -> int:
    """Return the bytes of all keys and values."""
    return sum(x.nbytes for layer in reader.cache.layers for x in (layer.keys, layer.values))
