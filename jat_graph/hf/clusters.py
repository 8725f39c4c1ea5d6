"""Heads that read along trees of keys; in decoders, what these leave behind stays in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from jat_graph.clusters.choice import Rule
from jat_graph.clusters.settings import MEASURED, NEVER, ClusterGraph
from jat_graph.core.heads import HeadGroup, HeadOutput, HeadParts, split_heads
from jat_graph.core.masks import TokenMask, split_additive
from jat_graph.core.past import Past
from jat_graph.hf.inputs import AttentionInputs, window_of
from jat_graph.hf.modules import AttachedHeads, AttentionModule, spread

if TYPE_CHECKING:
    from jat_graph.clusters.attend import State
    from jat_graph.jumps.config import JatConfig

ORDER = (
    "attention_mask must be causal order and padding, or documents, the same for all heads, for "
    "causal cluster heads, got later tokens or biases"
)
Rules = Mapping[Rule, tuple[int, ...]]  # the heads of each, all of a layer


@dataclass(frozen=True)
class AttachedClusters(AttachedHeads):
    """The heads of one attention module that read by clusters."""

    # In causal order or not, on CUDA or not: how heads, counted from 0, read, and which share that.
    rules: dict[tuple[bool, bool], Rules] = field(init=False, compare=False, repr=False)

    graphs = (ClusterGraph,)
    name = "jat_clusters"
    word = "cluster"

    def __post_init__(self) -> None:
        rules_of = self.config.cluster_graph.rules
        given = product((len(self.heads),), (False, True), ("cpu", "cuda"))
        object.__setattr__(self, "rules", {(x[1], x[2] == "cuda"): rules_of(*x) for x in given})

    @classmethod
    def in_module(
        cls, entry: AttentionModule, index: int, row: int, config: JatConfig
    ) -> AttachedHeads | None:
        """Return the heads of one module; none if it reads within a window of its own."""
        if window_of(entry.module) is None:
            return super().in_module(entry, index, row, config)
        if config.layers is None:
            return None
        what = f"{index}, whose {type(entry.module).__name__} reads within a window of its own"
        raise ValueError(f"layers must leave out {what}, got {config.layers}")

    def is_identity(self, module: nn.Module) -> bool:
        """Tell whether all heads read densely, whatever the length."""
        return all(rule.dense_below + 1 >= NEVER for rule in self.rules[False, False])

    def describe(self, module: nn.Module) -> str:
        graph = self.config.cluster_graph
        measured = MEASURED[bool(getattr(module, "is_causal", True))]
        words = [f"{spread(graph.keys, str(measured.keys))} keys"]
        words.append(f"{spread(graph.groups, str(measured.groups))} groups")
        words += ["nothing elsewhere"] if not graph.propagate else []
        if graph.dense_below is not None:
            words.append(f"dense below {spread(graph.dense_below, 'a measured length')}")
        return ", ".join(words)

    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return what the heads read; short sequences leave them ordinary ones."""
        causal = getattr(inputs.module, "is_causal", True)
        mask = inputs.attention_mask
        if not causal and mask is not None and mask.size(-2) > 1:
            causal = inputs.token_mask().causal
        return read_rules(inputs, self, self.rules[inputs.in_order(causal), inputs.query.is_cuda])


def check_global(inputs: AttentionInputs, causal: bool) -> None:
    """Refuse global tokens in causal order, in which no token sees all."""
    if causal:
        name = type(inputs.module).__name__
        raise ValueError(f"{name} is causal, so that none of its tokens can be global")


def read_rules(inputs: AttentionInputs, owner: Any, rules: Rules) -> HeadParts:
    """Return how heads of each rule read; where all tokens are dense, they are ordinary ones."""
    from jat_graph.clusters.api import read_by_clusters  # which few processes need

    causal = next(iter(rules)).causal
    if inputs.everywhere is not None:
        check_global(inputs, causal)
    past = None
    mask = None
    features = (inputs.query, inputs.key, inputs.value)
    if causal:
        recorded = torch.is_grad_enabled() and any(x.requires_grad for x in features)
        if recorded or inputs.dropout or torch.compiler.is_compiling():
            inputs.check_whole("cluster heads with gradients, dropout or torch.compile")
        else:
            past = inputs.past(owner, lambda: TreePast(rules), TreePast.adopt)
        mask = inputs.token_mask(past)
        if inputs.attention_mask is not None or not mask.causal:
            _check_order(inputs, mask)
    if past is not None and mask is not None and mask.pairs is None:
        return past.append(features, replace(mask, causal=True), inputs.scale)
    inputs.check_whole("cluster heads")
    options: dict[str, Any] = {"dropout_p": inputs.dropout, "scale": inputs.scale}
    options["everywhere"] = inputs.everywhere
    parts: list[HeadGroup | HeadOutput] = []
    groups = list(rules.values())
    inputs = inputs.repeat_keys() if len(groups) > 1 else inputs
    cut = (split_heads(x, groups) for x in (inputs.query, inputs.key, inputs.value))
    for rule, heads, query, key, value in zip(rules, groups, *cut, strict=True):
        if query.size(2) <= rule.first:
            parts.append(HeadGroup(heads, query, key, value, jumps=False))
        else:
            mask = mask or inputs.token_mask()
            output = read_by_clusters(query, key, value, rule, mask=mask, **options)
            parts.append(HeadOutput(heads, output))
    return parts


@dataclass(eq=False)
class TreePast(Past):
    """What earlier tokens left behind for heads that read along trees of keys."""

    heads: Rules
    kept: list[list[State | None]] = field(default_factory=list)  # for each rule, of each sequence

    def adopt(self, length: int, attention_mask: Tensor | None) -> None:
        """Take over a cache of so many tokens: keys say all that is to be known of them."""
        self.reset()
        self.length = length
        if attention_mask is not None and length:
            last = split_additive(attention_mask)[0][:, :, -1, :length]
            self.valid = None if bool(last.all()) else last

    @torch.no_grad()
    def append(
        self, own: Any, mask: TokenMask, scale: float, strength: Tensor | None = None
    ) -> HeadParts:
        from jat_graph.clusters.attend import read_next

        query, key, value = own
        self.length = self.length + query.size(2)
        self.valid = None if mask.valid is None else mask.valid.expand(len(query), -1, -1)
        self.kept = self.kept or [[None] * len(query) for _ in self.heads]
        sharing = len(self.heads) == 1
        spans = _spans(self.valid, len(query), self.length, query.size(2))
        alone = len(query) == 1 and self.valid is None
        longest = max(number for _, _, number in spans)
        times = query.size(1) // key.size(1)
        parts = list[HeadGroup | HeadOutput]()
        for (rule, heads), kept in zip(self.heads.items(), self.kept, strict=True):
            shared = slice(None) if sharing else torch.tensor(heads, device=key.device) // times
            asked = query if sharing else query[:, list(heads)]
            if longest <= rule.first:
                parts.append(HeadGroup(heads, asked, key[:, shared], value[:, shared], jumps=False))
                continue
            shape = len(query), query.size(2), len(heads), value.size(-1)
            # Heads of a token stand together.
            output = torch.empty(0) if alone else value.new_zeros(shape).transpose(1, 2)
            for row, (tokens, new, _) in enumerate(spans):
                k, v = (x[row][shared][:, tokens] for x in (key, value))
                with torch.autocast(key.device.type, enabled=False):
                    found, kept[row] = read_next(asked[row][:, new], k, v, rule, scale, kept[row])
                if not alone:
                    output[row][:, new] = found
            parts.append(HeadOutput(heads, found[None] if alone else output))
        return parts

    def forget(self, changed: list[str]) -> None:
        self.kept = []  # the next token grows a tree of what is there now

    def crop(self, length: int) -> None:
        super().crop(length)
        for own in self.kept:
            spans = _spans(self.valid, len(own), self.length, 0)
            own[:] = [kept and kept.crop(n) for kept, (*_, n) in zip(own, spans, strict=True)]

    def reorder(self, order: Tensor) -> None:
        kept = self.kept
        self.kept = []
        super().reorder(order)
        self.kept = [[own[row] for row in order.tolist()] for own in kept]


def _spans(valid: Tensor | None, rows: int, length: int, new: int) -> list[tuple[Any, Any, int]]:
    """Return which tokens of each sequence are no padding, which of the next ones, and how many."""
    if valid is None:
        return [(slice(0, length), slice(None), length)] * rows
    own = valid.any(1).expand(rows, -1)
    numbers = torch.stack([*(x.int().argmax(-1) for x in (own, own.flip(-1))), own.sum(-1)], 1)
    spans = list[tuple[Any, Any, int]]()
    for row, (first, after, count) in zip(own, numbers.tolist(), strict=True):
        ends = first, length - after
        next_ends = (max(0, end - length + new) for end in ends)
        found: Any = slice(*ends), slice(*next_ends)  # a view of them
        if ends[1] - ends[0] != count:
            found = (x.nonzero().squeeze(-1) for x in (row, row[length - new :]))
        spans.append((*found, count))
    return spans


def _check_order(inputs: AttentionInputs, mask: TokenMask) -> None:
    """Refuse a mask that lets tokens see later ones, differs from head to head, or has biases."""
    given = inputs.attention_mask
    valid = mask.valid
    ahead = False
    if torch.compiler.is_compiling():  # when no branch may depend on values
        if mask.pairs is not None:
            torch._assert_async(~mask.pairs.triu(1).any(), ORDER)
        return
    biased = given is not None and split_additive(given)[1] is not None
    by_head = valid is not None and valid.size(1) > 1
    if not mask.causal and inputs.query.size(2) > 1:
        if mask.pairs is not None:
            ahead = bool(mask.pairs.triu(1).any())
        else:  # no order tells single tokens apart
            ahead = valid is None or int(valid.sum(-1).max()) > 1
    if biased or by_head or ahead:
        raise ValueError(ORDER)
