"""Heads of pretrained models that jump, and those that are told by clusters where to look."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from jat_graph.clusters.choice import Rule
from jat_graph.clusters.settings import MEASURED, NEVER, ClusterGraph
from jat_graph.core.heads import HeadParts
from jat_graph.core.masks import TokenMask
from jat_graph.hf.inputs import AttentionInputs, trust_causal, window_of
from jat_graph.hf.modules import AttentionModule, Builders, LayerHeads, ModuleHeads, head_size
from jat_graph.hf.positions import most_positions
from jat_graph.hf.tree_heads import in_causal_order, read_rules
from jat_graph.jumps.adjacency.keys import unsupported_selection
from jat_graph.jumps.config import JatConfig, PairGraph, StoneGraph
from jat_graph.jumps.external_graphs import read_graph
from jat_graph.jumps.fields import LEARNED
from jat_graph.jumps.heads import JumpHeads, JumpStrength
from jat_graph.jumps.past_stones import new_past
from jat_graph.jumps.propagation import head_groups, strength_is_zero


@dataclass(frozen=True)
class ClusterLayer(LayerHeads):
    """The heads of one attention module that read by clusters."""

    # In causal order or not: how heads, counted from 0, read, and which of them share that.
    rules: dict[bool, dict[Rule, tuple[int, ...]]] = field(init=False, compare=False, repr=False)

    graphs = (ClusterGraph,)
    name = "jat_clusters"
    word = "cluster"
    on_features = False

    def __post_init__(self) -> None:
        graph, number = self.config.cluster_graph, len(self.heads)
        rules = {causal: graph.rules(number, causal) for causal in (False, True)}
        object.__setattr__(self, "rules", rules)

    @classmethod
    def in_modules(cls, modules: list[AttentionModule], config: JatConfig) -> ModuleHeads:
        """Return the heads of each module, which have rows of their own in a table."""
        found = [entry for entry in modules if entry.left_alone is None]
        _check_tables(config, len(config.layer_indices(len(found))))
        made = super().in_modules(modules, config)
        if not made:
            kind = type(found[0].module).__name__
            raise ValueError(f"{kind} reads within a window in all layers, which needs no clusters")
        return made

    @classmethod
    def in_module(
        cls, entry: AttentionModule, index: int, row: int, config: Any
    ) -> LayerHeads | None:
        """Return the heads of one module; none if it reads within a window of its own."""
        made = super().in_module(entry, index, row, config)
        if window_of(entry.module) is None:
            return made
        if config.layers is None:
            return None
        raise ValueError(
            f"layers must leave out {index}, whose {type(entry.module).__name__} reads within a "
            f"window of its own, got {config.layers}"
        )

    def is_identity(self, module: nn.Module) -> bool:
        """Tell whether all heads read densely, whatever the length."""
        return all(rule.dense_below + 1 >= NEVER for rule in self.rules[False])

    def describe(self, module: nn.Module) -> str:
        """Return how many keys are read and groups opened, and the rest if it is no default."""
        graph = self.config.cluster_graph
        measured = MEASURED[bool(getattr(module, "is_causal", True))]
        words = [f"{_spread(graph.keys, str(measured.keys))} keys"]
        words.append(f"{_spread(graph.groups, str(measured.groups))} groups")
        words += ["nothing elsewhere"] if not graph.propagate else []
        if graph.dense_below is not None:
            words.append(f"dense below {_spread(graph.dense_below, 'a measured length')}")
        return ", ".join(words)

    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return what the heads read; short sequences leave them ordinary ones."""
        causal, mask = getattr(inputs.module, "is_causal", True), inputs.attention_mask
        if not causal and mask is not None and mask.size(-2) > 1:
            causal = inputs.token_mask().causal
        return read_rules(inputs, self, self.rules[in_causal_order(inputs, causal)])


def needs_standard(config: JatConfig) -> bool:
    """Tell whether heads go by standard scores, which masks of pairs have not."""
    graph = config.jump_graph
    return not isinstance(graph, PairGraph) or graph.standardize


def _check_tables(config: JatConfig, layers: int) -> None:
    """Refuse tables that have not a row for each layer."""
    for name, table in config.graph.tables().items():
        if len(table) != layers:
            raise ValueError(
                f"{name} table must have {layers} rows, one for each layer, got {len(table)}"
            )


def _check_windows(made: ModuleHeads, found: list[Any]) -> None:
    """Refuse heads by standard scores where a module reads within a window of its own."""
    for heads in made.values():
        module = found[heads.index]
        window, most = window_of(module), most_positions(module.config)
        if window is not None and (most is None or window < most):
            whole = tuple(index for index, other in enumerate(found) if window_of(other) is None)
            what = "stones" if heads.config.graph.kind == "stones" else "standard scores"
            none = "which no layer of this model sees; pairs without standardize read within it"
            cure = f": pass layers={whole}" if whole else f", {none}"
            raise ValueError(
                f"{type(module).__name__} of layer {heads.index} sees a window of {window} tokens "
                f"(sliding_window), and {what} need all of them{cure}"
            )


def _spread(value: Any, unset: str = "", form: str = "g") -> str:
    """Return a number, or the least and the largest of a table with one row, and what None is."""
    entries = value[0] if isinstance(value, tuple) else (value,)
    numbers = sorted(entry for entry in entries if entry is not None)
    ends = dict.fromkeys(f"{end:{form}}" for end in (*numbers[:1], *numbers[-1:]))
    return " or ".join([" to ".join(ends)] * bool(ends) + [unset] * (None in entries))


@dataclass(frozen=True)
class JumpLayer(LayerHeads):
    """The jump heads of one attention module."""

    config: JatConfig
    jumping: JumpHeads = field(init=False, compare=False, repr=False)  # among themselves
    fixed: bool = field(init=False, compare=False, repr=False)  # whether some jump at any rate
    learning: bool = field(init=False, compare=False, repr=False)  # whether a strength is learned

    graphs = (PairGraph, StoneGraph)
    name = "jat"
    word = "jump"

    def __post_init__(self) -> None:
        object.__setattr__(self, "jumping", JumpHeads.everyone(self.config, len(self.heads)))
        strengths = {strength for triple in self.config.strengths() for strength in triple}
        object.__setattr__(self, "fixed", not strengths or any(strengths - {LEARNED}))
        object.__setattr__(self, "learning", LEARNED in strengths)

    @classmethod
    def in_modules(cls, modules: list[AttentionModule], config: JatConfig) -> ModuleHeads:
        """Return the jump heads of each module, which have rows of their own in a table."""
        made = super().in_modules(modules, config)
        _check_tables(config, len(made))
        if needs_standard(config):
            _check_windows(made, [entry.module for entry in modules if entry.left_alone is None])
        return made

    @classmethod
    def in_module(cls, entry: AttentionModule, index: int, row: int, config: Any) -> JumpLayer:
        """Return the jump heads of one module, which must not look ahead if it is causal."""
        jump = super().in_module(entry, index, row, config)
        assert isinstance(jump, JumpLayer)
        pattern = jump.jumping.pattern
        if entry.is_causal and pattern is not None and pattern.needs_global:
            name = type(entry.module).__name__
            raise ValueError(
                f"{name} is causal: pattern must have no 'global', got {config.pattern!r}"
            )
        if entry.is_causal and not jump.jumping.is_identity:
            reasons = unsupported_selection(config, TokenMask(causal=True))
            if config.conv is not None and config.jump_graph.kind == "stones":
                reasons = [*reasons, "a layer on stones would use later tokens; use graph='pairs'"]
            if reasons:
                raise ValueError(f"{type(entry.module).__name__} is causal: {'; '.join(reasons)}")
        return jump

    @classmethod
    def learns(cls, config: JatConfig) -> bool:
        """Tell whether a strength is learned, or a layer of PyG may learn."""
        return config.conv is not None or any(LEARNED in triple for triple in config.strengths())

    def parameters(self, module: nn.Module, conv: Any = None) -> Builders:
        """Return the strengths, if they are learned, and layers of PyG."""

        def strength() -> nn.Module:
            theta = self.jumping.new_strength()
            assert theta is not None
            return JumpStrength(theta)

        def layers() -> nn.Module:
            from jat_graph.nn.head_layers import build_layers  # PyG takes seconds to load

            # Drawn on the CPU, from a seed of their own.
            with torch.random.fork_rng(devices=[]), torch.device("cpu"):
                torch.manual_seed(self.config.seed + self.index)
                return build_layers(self.config, conv, head_size(module))

        made = {"strength": strength} if self.learning else {}
        return made | ({} if self.config.conv is None else {"jump_conv": layers})

    def is_identity(self, module: nn.Module) -> bool:
        """Tell whether no head can differ from an ordinary one, whatever its scores."""
        if self.fixed:
            return self.jumping.is_identity
        strength = self.learned(module)
        return strength is None or strength_is_zero(strength)

    def learned(self, module: Any) -> Tensor | None:
        """Return the strengths that a module has learned; None if there is nothing to learn."""
        return module.strength() if self.learning else None

    def describe(self, module: nn.Module) -> str:
        """Return what they go along, and how far."""
        config, graph, learned = self.config, self.config.jump_graph, self.learned(module)
        conv, weights = config.conv, config.hop_weights
        if isinstance(graph, PairGraph) and graph.vote_rate is not None:
            rule = f"vote rate {graph.vote_rate:g}"
        else:
            rule = f"threshold {_spread(graph.threshold, form='.3g')}"
        words = [graph.kind, rule]
        words += [f"{graph.key_selection} keys"] if graph.key_selection != "all" else []
        words += [f"layer {conv if isinstance(conv, str) else conv['layer']}"] if conv else []
        words += [f"within {config.pattern}"] if config.pattern is not None else []
        if config.strength is None:
            groups = weights.values() if isinstance(weights, dict) else (weights,)
            rows = (", ".join(f"{weight:g}" for weight in group) for group in groups)
            return ", ".join([*words, "hop weights " + " or ".join(f"({row})" for row in rows)])
        words += ["learned"] if learned is not None else []
        for side, name in enumerate(("queries", "keys", "values")):
            hops = [
                _spread((learned[side, hop].tolist(),), form=".3g")
                if learned is not None and triple[side] == LEARNED
                else f"{triple[side]:g}"
                for hop, triple in enumerate(config.strengths())
            ]
            words.append(f"{name} {', then '.join(hops)}")
        return ", ".join(words)

    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return propagated queries and keys, heads of the same hops together."""
        graph, external = self.config.graph, inputs.external
        pairs = graph if isinstance(graph, PairGraph) else None
        whole = {  # what needs the queries of all tokens, so that no cache can serve it
            "on graphs from outside": external is not None,
            "with layers of PyG": self.config.conv is not None,
            "with strengths on pairs": pairs and self.config.strength is not None,
            "on pruned pairs": pairs and pairs.max_neighbors,
        }
        for what in (what for what, holds in whole.items() if holds):
            inputs.check_whole(f"jump heads {what}")
        past = None if any(whole.values()) else inputs.past(self, partial(new_past, self.jumping))
        features = inputs.query, inputs.key, inputs.value
        mask, strength = inputs.token_mask(past), self.learned(inputs.module)
        if torch.compiler.is_compiling() and getattr(inputs.module, "is_causal", True):
            if needs_standard(self.config) or (pairs and pairs.backend == "threshold"):
                mask = trust_causal(mask)
        if past is not None:
            return past.append(features, mask, inputs.scale, strength)
        layers = getattr(inputs.module, "jump_conv", None)
        if external is not None:
            takes = () if layers is None else layers.takes
            external = read_graph(external, inputs.query, mask, self.heads, takes)
        options: dict[str, Any] = {"mask": mask, "scale": inputs.scale, "strength": strength}
        options |= {"external": external, "layers": layers}
        return head_groups(*features, self.jumping, **options)
