"""Trees of keys: causal heads, new tokens, decoders with their caches, and what is kept beside."""

from __future__ import annotations

import sysconfig
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from torch.utils._pytree import tree_leaves
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from examples import pretrained_decoders
from examples.benchmarks import clusters, measure
from examples.benchmarks.inputs import DIM, Heads
from examples.benchmarks.measure import NotMeasured, Outcome, Settings, agree
from examples.benchmarks.models import LLAMA, random_batch, widen
from jat_graph import ClusterGraph, clustered_attention
from jat_graph.clusters import naive
from jat_graph.clusters.attend import read_next
from jat_graph.clusters.choice import empty_choice, wide

# Of SmolLM2-135M, which shares each head of keys among three of queries, 4 of its 30 layers.
SHAPES: dict[str, dict[str, Any]] = {"Llama": LLAMA, "SmolLM2": {"num_hidden_layers": 4}}
SHAPES["SmolLM2"] |= {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536}
SHAPES["SmolLM2"] |= {"num_attention_heads": 9, "num_key_value_heads": 3}
PRETRAINED, LAYERS = "smollm2", 8  # the last of these layers gives real heads
CHECKED = 2048  # tokens of which some must be the formula
NEW = 64  # tokens at a time
BEGIN = 2048  # the first token along a tree, so that trees are measured at 8192 tokens, too
OURS = partial(clustered_attention, is_causal=True, enable_gqa=True, dense_below=BEGIN)


@cache
def real_heads(length: int) -> Heads:
    """Nine heads of queries on three of keys: those of a layer of SmolLM2 on Python's own code."""
    try:
        model, tokenizer = pretrained_decoders.load(PRETRAINED)
    except ImportError as error:
        raise NotMeasured(str(error)) from None
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text, found = "".join(file.read_text("utf-8") for file in files[: length // 256]), []

    def attend(module: Any, *parts: Any, **options: Any) -> Any:
        found[:] = [x.clone() for x in parts[:3]]
        return sdpa_attention_forward(module, *parts, **options)

    AttentionInterface.register("recorded", attend)
    AttentionMaskInterface.register("recorded", sdpa_mask)
    model.model.layers = model.model.layers[:LAYERS]
    model.set_attn_implementation("recorded")
    with torch.inference_mode():
        model.model(tokenizer(text, return_tensors="pt").input_ids[:, :length], use_cache=False)
    return Heads(*(x.clone() for x in found))


def heads(length: int, settings: Settings, training: bool = False) -> Outcome:
    """Real heads, forward or with backward, against SDPA."""
    own = Heads(*(x.to(settings.device, settings.dtype) for x in real_heads(length)))
    first = Heads(*(x[:, :, :CHECKED] for x in own))
    ours = lambda *x: OURS(*x, dense_below=0)[:, :, :: clusters.EVERY]  # noqa: E731
    clusters.check(first, training, ours, partial(clusters.by_formula, causal=True))
    theirs = partial(F.scaled_dot_product_attention, is_causal=True, enable_gqa=True)
    sides = (partial(clusters.run, attend, own, training) for attend in (OURS, theirs))
    return measure.in_turns(*sides, settings)


def new_row(length: int, settings: Settings, dtype: str = "") -> Outcome:
    """A new token in these heads, whose tree is there, against SDPA."""
    own = [x.to(settings.device, getattr(torch, dtype, settings.dtype)) for x in real_heads(length)]
    (query, key, value), new = (x[0] for x in own), own[0][:, :, -1:]
    rule, scale = ClusterGraph(dense_below=BEGIN).rule(causal=True), DIM**-0.5
    with torch.inference_mode():
        before = query[:, :-1], key[:, :-1], value[:, :-1]
        _, state = read_next(*before, rule, scale)
        ours, state = read_next(new[0], key, value, rule, scale, state)
        asked = wide(new[0]) * scale
        empty = empty_choice(asked, length, state.tree, rule)
        wanted, _ = naive.read(asked, key, value, empty, state.nodes, chosen=False)
        agree(ours, wanted.to(ours.dtype))
        if ours.dtype == torch.float32:  # in which means are not rounded
            agree(ours, OURS(*own)[0, :, -1:])
        by_tree = partial(read_next, new[0], key, value, rule, scale, state)
        theirs = partial(F.scaled_dot_product_attention, new, *own[1:], enable_gqa=True)
        return measure.in_turns(by_tree, theirs, settings)


class Reader:
    """A decoder with random weights that reads a prompt, and tokens of it after that."""

    def __init__(self, length: int, settings: Settings, shape: str, name: str) -> None:
        torch.manual_seed(0)
        positions = {"max_position_embeddings": 2 * length}
        config = transformers.LlamaConfig(**SHAPES[shape], **positions, attn_implementation=name)
        model = widen(transformers.LlamaForCausalLM(config)).eval()
        self.model: Any = model.to(settings.device, settings.dtype)
        self.name = name
        self.tokens = random_batch(1, length, config.vocab_size, settings.device)["input_ids"]
        self.cache: Any = None

    @torch.inference_mode()
    def read(self, tokens: Tensor) -> Tensor:
        """Read tokens, and return what comes next."""
        self.model.config.clustered = {"dense_below": BEGIN}
        if self.model.config._attn_implementation != self.name:
            self.model.set_attn_implementation(self.name)
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
    return measure.outcome(*zip(*taken[1:], strict=True), their_read_bytes=cached(sides[1]))


def pretrained_token(length: int, settings: Settings) -> Outcome:
    """A new token of SmolLM2 itself, the whole model, after a prompt."""
    try:
        model, _ = pretrained_decoders.load(PRETRAINED)
    except ImportError as error:
        raise NotMeasured(str(error)) from None
    sides = []
    for name in ("clustered", "sdpa"):
        side = object.__new__(Reader)
        side.model, side.name, side.cache = model.to(settings.dtype), name, None
        side.tokens = random_batch(1, length, model.config.vocab_size, settings.device)["input_ids"]
        side.prefill()
        sides.append(side)
    taken = [[side.go_on() for side in sides] for _ in range(settings.repeats + 1)]
    return measure.outcome(*zip(*taken[1:], strict=True))


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
