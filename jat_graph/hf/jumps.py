"""Jump heads in pretrained models."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from jat_graph.core.heads import HeadParts
from jat_graph.core.masks import TokenMask, trust_causal
from jat_graph.hf.inputs import AttentionInputs, window_of
from jat_graph.hf.modules import AttachedHeads, AttentionModule, HeadsByModule, head_size, spread
from jat_graph.hf.positions import most_positions
from jat_graph.jumps.adjacency.keys import unsupported_selection
from jat_graph.jumps.config import JatConfig, PairGraph, StoneGraph
from jat_graph.jumps.external_graphs import read_graph
from jat_graph.jumps.fields import LEARNED
from jat_graph.jumps.heads import JumpHeads, JumpStrength
from jat_graph.jumps.past_stones import new_past
from jat_graph.jumps.propagation import head_groups, strength_is_zero


@dataclass(frozen=True)
class AttachedJumps(AttachedHeads):
    """The jump heads of one attention module."""

    jumping: JumpHeads = field(init=False, compare=False, repr=False)  # among themselves
    fixed: bool = field(init=False, compare=False, repr=False)  # whether some jump at any rate
    learning: bool = field(init=False, compare=False, repr=False)  # whether a strength is learned

    graphs = (PairGraph, StoneGraph)
    name = "jat"
    word = "jump"
    learns = ("strength", "jump_conv")

    def __post_init__(self) -> None:
        object.__setattr__(self, "jumping", JumpHeads.everyone(self.config, len(self.heads)))
        strengths = {strength for triple in self.config.strengths() for strength in triple}
        object.__setattr__(self, "fixed", not strengths or any(strengths - {LEARNED}))
        object.__setattr__(self, "learning", LEARNED in strengths)

    @classmethod
    def in_modules(cls, modules: list[AttentionModule], config: JatConfig) -> HeadsByModule:
        """Return the jump heads of each module, none of which may hide tokens that they need."""
        made = super().in_modules(modules, config)
        found = [entry.module for entry in modules if entry.left_alone is None]
        for heads in made.values() if config.jump_graph.standardize else ():
            module = found[heads.index]
            window = window_of(module)
            most = most_positions(module.config)
            if window is not None and (most is None or window < most):
                whole = tuple(i for i, other in enumerate(found) if window_of(other) is None)
                what = "stones" if config.graph.kind == "stones" else "standard scores"
                none = "which no layer of this model sees; pairs without standardize read within it"
                cure = f": pass layers={whole}" if whole else f", {none}"
                got = f"sees a window, or chunk, of {window} tokens"
                name = f"{type(module).__name__} of layer {heads.index}"
                raise ValueError(f"{name} {got}, and {what} need all of them{cure}")
        return made

    @classmethod
    def in_module(
        cls, entry: AttentionModule, index: int, row: int, config: JatConfig
    ) -> AttachedJumps:
        """Return the jump heads of one module, which must not look ahead if it is causal."""
        jump: Any = super().in_module(entry, index, row, config)
        pattern = jump.jumping.pattern
        name = type(entry.module).__name__
        if entry.is_causal and pattern is not None and pattern.needs_global:
            got = repr(config.pattern)
            raise ValueError(f"{name} is causal: pattern must have no 'global', got {got}")
        if entry.is_causal and not jump.jumping.is_identity:
            reasons = unsupported_selection(config, TokenMask(causal=True))
            if config.conv is not None and config.graph.kind == "stones":
                reasons = [*reasons, "a layer on stones would use later tokens; use graph='pairs'"]
            if reasons:
                raise ValueError(f"{name} is causal: {'; '.join(reasons)}")
        return jump  # type: ignore[no-any-return]

    def new_parameters(self, module: nn.Module, conv: Any) -> dict[str, nn.Module]:
        made: dict[str, nn.Module] = {}
        theta = self.jumping.new_strength()
        if theta is not None and not hasattr(module, "strength"):
            made["strength"] = JumpStrength(theta)
        if self.config.conv is not None and not hasattr(module, "jump_conv"):
            from jat_graph.nn.conv_factory import build_layers  # PyG takes seconds to load

            # Drawn on the CPU, from a seed of their own.
            with torch.random.fork_rng(devices=[]), torch.device("cpu"):
                torch.manual_seed(self.config.seed + self.index)
                made["jump_conv"] = build_layers(self.config, conv, head_size(module))
        return made

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
        config, graph = self.config, self.config.jump_graph
        learned = self.learned(module)
        conv, weights = config.conv, config.hop_weights
        threshold = f"threshold {spread(graph.threshold, form='.3g')}"
        rate = graph.vote_rate
        words = [graph.kind, threshold if rate is None else f"vote rate {rate:g}"]
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
                spread((learned[side, hop].tolist(),), form=".3g")
                if learned is not None and triple[side] == LEARNED
                else f"{triple[side]:g}"
                for hop, triple in enumerate(config.strengths())
            ]
            words.append(f"{name} {', then '.join(hops)}")
        return ", ".join(words)

    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return propagated queries and keys, heads of the same hops together."""
        config, external = self.config, inputs.external
        graph: Any = config.graph  # of pairs or of stones
        whole = {  # what needs the queries of all tokens, so that no cache can serve it
            "on graphs from outside": external is not None,
            "with layers of PyG": config.conv is not None,
            "with strengths on pairs": graph.kind == "pairs" and config.strength is not None,
            "on pruned pairs": graph.max_neighbors is not None,
        }
        for what in (what for what, holds in whole.items() if holds):
            inputs.check_whole(f"jump heads {what}")
        past = None if any(whole.values()) else inputs.past(self, partial(new_past, self.jumping))
        features = inputs.query, inputs.key, inputs.value
        mask = inputs.token_mask(past)
        strength = self.learned(inputs.module)
        if torch.compiler.is_compiling() and getattr(inputs.module, "is_causal", True):
            if graph.standardize or graph.backend == "threshold":
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
