"""Trees of keys: causal heads, new tokens, decoders with their caches, and what is kept beside."""

from __future__ import annotations

import sysconfig
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from torch.utils._pytree import tree_leaves

from examples import pretrained_decoders
from examples.benchmarks import clusters, measure
from examples.benchmarks.measure import Heads, Outcome, Settings, agree
from examples.benchmarks.models import random_batch, widen
from examples.long_inputs import record_heads
from jat_graph import ClusterGraph, JatConfig, attach, calibrate, clustered_attention
from jat_graph.clusters import naive
from jat_graph.clusters.attend import read_next
from jat_graph.clusters.choice import empty_choice, wide

LLAMA: dict[str, Any] = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2}
LLAMA |= {"num_attention_heads": 4, "intermediate_size": 512}
# Of SmolLM2-135M, which shares each head of keys among three of queries, 4 of its 30 layers.
SHAPES: dict[str, dict[str, Any]] = {"Llama": LLAMA, "SmolLM2": {"num_hidden_layers": 4}}
SHAPES["SmolLM2"] |= {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536}
SHAPES["SmolLM2"] |= {"num_attention_heads": 9, "num_key_value_heads": 3}
PRETRAINED, LAYERS = "smollm2", 8  # the last of these layers gives real heads
CHECKED = 2048  # tokens of which some must be the formula
NEW = 64  # tokens at a time
BEGIN = 2048  # the first token along a tree, so that trees are measured at 8192 tokens, too
OURS = partial(clustered_attention, is_causal=True, enable_gqa=True, dense_below=BEGIN)


def load_pretrained() -> tuple[Any, Any]:
    """SmolLM2 and its tokenizer, where they are installed."""
    try:
        return pretrained_decoders.load(PRETRAINED)
    except ImportError as error:
        raise measure.NotMeasured(str(error)) from None


def read_code(tokenizer: Any, length: int) -> Tensor:  # [1, length]
    """Tokens of Python's standard library."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = "".join(file.read_text("utf-8") for file in files[: max(1, length // 256)])
    found: Tensor = tokenizer(text, return_tensors="pt").input_ids[:, :length]
    return found


@cache
def real_heads(length: int) -> Heads:
    """Nine heads of queries on three of keys: those of a layer of SmolLM2 on Python's own code."""
    model, tokenizer = load_pretrained()
    model.model.layers = model.model.layers[:LAYERS]
    return Heads(*record_heads(model.model, read_code(tokenizer, length))[-1][1:4])


def heads(length: int, settings: Settings, training: bool = False) -> Outcome:
    """Real heads, forward or with backward, against SDPA."""
    own = Heads(*(x.to(settings.device, settings.dtype) for x in real_heads(length)))
    clusters.check(own, CHECKED, training, partial(OURS, dense_below=0), causal=True)
    theirs = partial(F.scaled_dot_product_attention, is_causal=True, enable_gqa=True)
    steps = (partial(measure.run, attend, own, training) for attend in (OURS, theirs))
    return measure.in_turns(*steps, settings)


def new_row(length: int, settings: Settings, dtype: str = "") -> Outcome:
    """A new token in these heads, whose tree is there, against SDPA."""
    own = [x.to(settings.device, getattr(torch, dtype, settings.dtype)) for x in real_heads(length)]
    (query, key, value), new = (x[0] for x in own), own[0][:, :, -1:]
    rule, scale = ClusterGraph(dense_below=BEGIN).rule(causal=True), measure.DIM**-0.5
    with torch.inference_mode():
        before = query[:, :-1], key[:, :-1], value[:, :-1]
        _, state = read_next(*before, rule, scale)
        ours, state = read_next(new[0], key, value, rule, scale, state)
        asked = wide(new[0]) * scale
        empty = empty_choice(asked, length, state.tree, rule)
        empty.opened.fill_(-1)
        empty.read.fill_(-1)
        wanted, _ = naive.read(asked, key, value, empty, state.nodes, chosen=False)
        agree(ours, wanted.to(ours.dtype))
        if ours.dtype == torch.float32:  # in which means are not rounded
            agree(ours, OURS(*own)[0, :, -1:])
        by_tree = partial(read_next, new[0], key, value, rule, scale, state)
        theirs = partial(F.scaled_dot_product_attention, new, *own[1:], enable_gqa=True)
        return measure.in_turns(by_tree, theirs, settings)


class Reader:
    """A decoder that reads tokens by an attention: prompts, and more of them after that.

    Those of a shape are random; SmolLM2 itself reads code.
    """

    def __init__(
        self, length: int, settings: Settings, shape: str | None, name: str = "sdpa",
        jumps: JatConfig | None = None, texts: int = 1,
    ) -> None:  # fmt: skip
        if shape is None:
            model, tokenizer = load_pretrained()
            self.tokens = read_code(tokenizer, texts * length).view(texts, length)
        else:
            torch.manual_seed(0)
            config = transformers.LlamaConfig(**SHAPES[shape], max_position_embeddings=2 * length)
            model = widen(transformers.LlamaForCausalLM(config)).eval()
            self.tokens = random_batch(texts, length, config.vocab_size, "cpu")["input_ids"]
        self.tokens = self.tokens.to(settings.device)
        self.model: Any = model.to(settings.device, settings.dtype)
        self.model.config.clustered = {"dense_below": BEGIN}
        self.model.set_attn_implementation(name)
        self.cache: Any = None
        if jumps is not None and jumps.strength is None:  # that of stones fits all heads as it is
            batch = {"input_ids": self.tokens.flip(-1)[:, :256]}
            jumps = calibrate(self.model, [batch], density=0.5, config=jumps)
        if jumps is not None:
            attach(self.model, jumps)
        self.read(self.tokens[:, :-2])  # a prompt in parts must be read as at once
        self.read(self.tokens[:, -2:-1])
        last = self.read(self.tokens[:, -1:])
        if settings.dtype == torch.float32:  # others round, token by token, in thirty layers
            agree(last, self.prefill())

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
            self.read(token).argmax(-1).tolist()
        return (time.perf_counter() - start) / NEW

    @torch.inference_mode()
    def start_again(self) -> float:
        """Return the seconds that a new token takes without a cache."""
        start = time.perf_counter()
        self.model(self.tokens, use_cache=False, logits_to_keep=1).logits.argmax().item()
        return time.perf_counter() - start

    def cached(self) -> int:
        """Return the bytes of all keys and values."""
        return sum(x.nbytes for layer in self.cache.layers for x in (layer.keys, layer.values))


def prefill(length: int, settings: Settings, shape: str) -> Outcome:
    """A prompt into a cache, by clusters against SDPA."""
    sides = [Reader(length, settings, shape, name).prefill for name in ("clustered", "sdpa")]
    return measure.in_turns(*sides, settings, heavy=True)


def first_token(length: int, settings: Settings, dtype: str = "", texts: int = 1) -> Outcome:
    """Prompts into the cache of SmolLM2 itself, all of it, and the bytes that this takes."""
    settings = settings._replace(dtype=getattr(torch, dtype, settings.dtype))
    build = partial(_build_prefill, length, settings, texts)
    sides = [build(name) for name in ("clustered", "sdpa")]
    found = measure.in_turns(*sides, settings, heavy=True)
    del sides
    names = {"our_bytes": "clustered", "their_bytes": "sdpa"}
    facts = {
        fact: measure.peak(_build_prefill, length, settings, texts, name, device=settings.device)
        for fact, name in names.items()
    }
    return found | {"facts": facts}


def _build_prefill(length: int, settings: Settings, texts: int, name: str) -> measure.Step:
    return Reader(length, settings, None, name, texts=texts).prefill


def next_token(length: int, settings: Settings, dtype: str = "", texts: int = 1) -> Outcome:
    """A new token of SmolLM2 itself after prompts."""
    settings = settings._replace(dtype=getattr(torch, dtype, settings.dtype))
    sides = [Reader(length, settings, None, x, texts=texts) for x in ("clustered", "sdpa")]
    return take_turns(sides[0].go_on, sides[1].go_on, settings)


def new_token(length: int, settings: Settings, shape: str | None = None) -> Outcome:
    """A new token after a prompt, the cache growing on, and the bytes that are read of it.

    Without a shape the decoder is SmolLM2 itself, the whole model.
    """
    ours, theirs = (Reader(length, settings, shape, name) for name in ("clustered", "sdpa"))
    return take_turns(ours.go_on, theirs.go_on, settings, their_read_bytes=theirs.cached())


def jumping_token(
    length: int, settings: Settings, graph: str | None = None, selection: str = "all"
) -> Outcome:
    """A new token where heads jump, against one without a cache; along stones, without jumps."""
    jumps = None
    if graph is not None:
        step = 64 if selection == "strided" else None
        jumps = getattr(JatConfig, graph)(heads="all", key_selection=selection, key_step=step)
    if graph == "stones":
        jumps = jumps.replace(strength=0.5)
    ours = Reader(length, settings, "Llama", jumps=jumps)
    theirs = Reader(length, settings, "Llama").go_on if graph == "stones" else ours.start_again
    return take_turns(ours.go_on, theirs, settings, layers=LLAMA["num_hidden_layers"])


def take_turns(
    ours: Callable[[], float], theirs: Callable[[], float], settings: Settings, **facts: Any
) -> Outcome:
    """Compare two sides that time themselves, after each has done so once for nothing."""
    taken = [(ours(), theirs()) for _ in range(settings.repeats + 1)]
    return measure.outcome(*zip(*taken[1:], strict=True), **facts)


def state(length: int, settings: Settings, shape: str) -> Outcome:
    """The bytes of what stands beside a cache, against those of the cache."""
    reader = Reader(length, settings, shape, "clustered")
    reader.go_on()
    held = tree_leaves([vars(past) for layer in reader.cache.layers for _, past in layer.pasts])
    found = [x.untyped_storage() for x in held if isinstance(x, Tensor)]
    beside = sum({each.data_ptr(): each.nbytes() for each in found}.values())
    return measure.outcome([beside], [reader.cached()])
