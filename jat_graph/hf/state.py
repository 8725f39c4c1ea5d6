"""What an attached model remembers for the attention function that transformers calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedConfig

from jat_graph.core.compiling import setting
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.hf.inputs import AttentionInputs, why_left_alone
from jat_graph.hf.jumps import AttachedJumps
from jat_graph.hf.modules import AttachedHeads, AttentionModule, ConfigsByKind
from jat_graph.hf.names import SAVED_NAME, saved_settings
from jat_graph.jumps.config import JatConfig
from jat_graph.jumps.fields import LEARNED
from jat_graph.jumps.patterns.base import Pattern

KINDS: tuple[type[AttachedHeads], ...] = (AttachedJumps, AttachedClusters)
# Kinds that version 0.2.0 had, and what their settings held.
GONE = {"triplet": {"pairs", "layers"}, "attention_filter": {"rule", "layers"}}
STATE_ATTRIBUTE = "_jat_layer"
ROOT_ATTRIBUTE = "_jat_attachment"  # of the model that got the heads
# Settings that contexts give to the calls of their own thread or task, of each attached model.
own_settings: ContextVar[Mapping[tuple[object, str], Any]] = ContextVar(
    "own", default=MappingProxyType({})
)


@dataclass
class Attachment:
    """What all attention modules of one attached model share: no parameters, no global tables."""

    # The attention that each of the model's own configurations had before.
    implementations: list[tuple[PreTrainedConfig, str | None]] = field(default_factory=list)
    configs: ConfigsByKind = field(default_factory=dict)  # as attach got them
    pattern: Pattern | None = None  # of self-attention
    on_features: bool = True  # whether all layers give probabilities: one without shifts others
    hooks: list[RemovableHandle] = field(default_factory=list)
    token_hooks: list[RemovableHandle] = field(default_factory=list)  # those of excluded tokens
    by_name: bool = False  # one module alone, that no function of ours has seen the model of
    entered: dict[tuple[int, nn.Module], Any] = field(default_factory=dict)  # forwards on graphs
    mark: object = field(default_factory=object)  # by which contexts know it
    contexts: dict[object, tuple[str, Any]] = field(default_factory=dict)  # all that are open
    # What ``setting_of`` tells: the class has the defaults, an object what was opened last.
    enabled: bool = True  # but inside jat_graph.disabled
    graphs: Any = None  # from outside, inside jat_graph.using_graphs
    output_attentions: bool = False  # whether the forward in progress asked for them
    # Takes heads and calls inside jat_graph.hf.capture_scores.
    recorder: Callable[[tuple[AttachedHeads, ...], AttentionInputs], None] | None = None

    @contextmanager
    def having(self, name: str, value: Any) -> Iterator[None]:
        """Give the calls of this thread or task a setting, inside the ``with``."""
        mark = object()
        self.contexts[mark] = (name, value)
        setattr(self, name, value)
        try:
            with setting(own_settings, {**own_settings.get(), (self.mark, name): value}):
                yield
        finally:
            del self.contexts[mark]
            still = [held for known, held in [*self.contexts.values()] if known == name]
            setattr(self, name, still[-1] if still else getattr(Attachment, name))

    def note_kinds(self) -> None:
        """Note where self-attention reads its scores, and what it gives, with these kinds."""
        jumps: JatConfig | None = self.configs.get(AttachedJumps)
        self.pattern = None if jumps is None else jumps.attention_pattern()
        self.on_features = AttachedClusters not in self.configs


@dataclass
class LayerState:
    """What one attention module of an attached model carries."""

    attachment: Attachment  # shared with the others
    takes_heads: bool  # whether it is self-attention that can have heads of ours
    heads: tuple[AttachedHeads, ...] = ()  # those that it has, each kind's apart


def layer_state(module: nn.Module) -> LayerState | None:
    """Return what :func:`jat_graph.attach` left on an attention module."""
    return getattr(module, STATE_ATTRIBUTE, None)


def heads_of(module: nn.Module) -> tuple[AttachedHeads, ...]:
    """Return the heads of ours that a module has."""
    state = layer_state(module)
    return () if state is None else state.heads


def saved_configs(settings: object) -> ConfigsByKind:
    """Return the settings of each kind of heads that a configuration, or a dict, holds of ours."""
    fields = settings if isinstance(settings, dict) else vars(settings)
    for name, held in GONE.items():
        if isinstance(fields.get(name), dict) and {*fields[name]} >= held:
            raise ValueError(f"{name} heads were saved, which version 0.2.0 of jat_graph had last")
    saved = saved_settings(settings)
    return {k: JatConfig.from_dict(saved[k.name]) for k in KINDS if k.name in saved}


def learn(configs: ConfigsByKind) -> bool:
    """Tell whether heads with these settings have weights: strengths, or layers of PyG."""
    strengths = [triple for config in configs.values() for triple in config.strengths()]
    layers = any(config.conv is not None for config in configs.values())
    return layers or any(LEARNED in triple for triple in strengths)


def check_without_weights(configs: ConfigsByKind, what: str) -> None:
    """Refuse heads whose weights transformers left in the folder when it loaded the model."""
    if learn(configs):
        got = f"{what} has heads with weights of their own, which were not loaded"
        raise ValueError(f"{got}: load it with jat_graph.from_pretrained")


# Once a layer has its state, it is traced like any other.
@torch.compiler.disable(  # type: ignore[no-untyped-call, untyped-decorator]
    reason="heads that were loaded by attn_implementation need one call before torch.compile"
)
def start_layer(module: nn.Module) -> LayerState:
    """Make the state of an attention module whose model was loaded by transformers alone."""
    name = type(module).__name__
    settings = module.config
    configs = saved_configs(settings)
    if not configs:
        got = f"{name} runs on the attention of jat_graph, but its configuration has no settings"
        cure = "load the model with jat_graph.from_pretrained, or use jat_graph.attach"
        raise ValueError(f"{got} of heads: {cure}")
    check_without_weights(configs, name)
    entry = AttentionModule(name, module, why_left_alone(module))
    attachment = Attachment(configs=configs, by_name=True)
    attachment.note_kinds()
    state = LayerState(attachment, entry.left_alone is None)
    if state.takes_heads:
        found = [_heads(kind, entry, config) for kind, config in configs.items()]
        state.heads = tuple(heads for heads in found if heads is not None)
    setattr(module, STATE_ATTRIBUTE, state)
    settings.attn_implementation = SAVED_NAME  # type: ignore[union-attr]  # for the next save
    return state


def _heads(kind: type[AttachedHeads], entry: AttentionModule, config: Any) -> AttachedHeads | None:
    """Return the heads of a kind in a module; None where its layer has none."""
    module = entry.module
    settings = entry.module.config
    layers = config.layers
    index: Any = getattr(module, "layer_idx", None)
    if index is None and (layers is not None or config.graph.tables()):
        raise ValueError(f"{entry.name} does not know its layer: use jat_graph.from_pretrained")
    index = index or 0
    if settings.is_encoder_decoder and getattr(module, "is_decoder", False):
        index += settings.num_hidden_layers  # a decoder's layers come after those of the encoder
    if layers is not None and index not in layers:
        return None
    row = index if layers is None else layers.index(index)
    return kind.in_module(entry, index, row, config)
