"""What an attached model remembers for the attention function that transformers calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedConfig, PreTrainedModel

from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.jump_layer import ClusterLayer, JumpLayer
from jat_graph.hf.modules import AttentionModule, KindConfigs, LayerHeads, why_left_alone
from jat_graph.jumps.config import JatConfig
from jat_graph.jumps.patterns.base import Pattern

NAME = "jat"
# What folders name: transformers quotes it where nobody has imported us, and cannot load them.
SAVED_NAME = "jat (import jat_graph.hf first)"
NAMES = (NAME, SAVED_NAME)
STATE_ATTRIBUTE = "_jat_layer"
ROOT_ATTRIBUTE = "_jat_attachment"  # of the model that got the heads
HEADS_FILE = "jat_config.json"  # beside an adapter of PEFT: the settings of the heads under it
# The task of the adapter's own settings: PEFT alone quotes it, as it knows none such, and refuses.
ADAPTER_NOTE = "jump heads: load it with jat_graph.from_pretrained"
GLOBAL = "global_attention_mask"  # as Longformer calls it; layers hand it on, too
GRAPHS = "jat_graphs"  # what layers hand on to their attention inside jat_graph.using_graphs


@dataclass
class Attachment:
    """What all attention modules of one attached model share: no parameters, no global tables."""

    # The attention that each of the model's own configurations had before.
    implementations: list[tuple[PreTrainedConfig, str | None]] = field(default_factory=list)
    configs: KindConfigs = field(default_factory=dict)  # as attach got them
    pattern: Pattern | None = None  # of self-attention
    on_features: bool = True  # whether all layers give probabilities: one without shifts others
    hooks: list[RemovableHandle] = field(default_factory=list)
    token_hooks: list[RemovableHandle] = field(default_factory=list)  # those of excluded tokens
    by_name: bool = False  # one module alone, that no function of ours has seen the model of
    enabled: bool = True  # but inside jat_graph.disabled
    graphs: Any = None  # from outside, inside jat_graph.using_graphs
    graphs_thread: int | None = None  # that is inside it
    entered: dict[tuple[int, nn.Module], Any] = field(default_factory=dict)  # forwards on graphs
    output_attentions: bool = False  # whether the forward in progress asked for them
    # Takes heads and calls inside jat_graph.hf.capture_scores.
    recorder: Callable[[tuple[LayerHeads, ...], AttentionInputs], None] | None = None

    def note_kinds(self) -> None:
        """Note where self-attention reads its scores, and what it gives, with these kinds."""
        jumps: JatConfig | None = self.configs.get(JumpLayer)
        self.pattern = None if jumps is None else jumps.attention_pattern()
        self.on_features = all(kind.on_features for kind in self.configs)


@dataclass
class LayerState:
    """What one attention module of an attached model carries."""

    attachment: Attachment  # shared with the others
    takes_heads: bool  # whether it is self-attention that can have heads of ours
    heads: tuple[LayerHeads, ...] = ()  # those that it has, each kind's apart


def layer_state(module: nn.Module) -> LayerState | None:
    """Return what :func:`jat_graph.attach` left on an attention module."""
    return getattr(module, STATE_ATTRIBUTE, None)


def heads_of(module: nn.Module) -> tuple[LayerHeads, ...]:
    """Return the heads of ours that a module has."""
    state = layer_state(module)
    return () if state is None else state.heads


KINDS: tuple[type[LayerHeads], ...] = (JumpLayer, ClusterLayer)
OURS = {"heads", "layers"}  # what settings of ours always hold
# Kinds that version 0.2.0 had, and what their settings held.
GONE = {"triplet": {"pairs", "layers"}, "attention_filter": {"rule", "layers"}}


def saved_configs(settings: object) -> KindConfigs:
    """Return the settings of each kind of heads that a configuration, or a dict, holds of ours."""
    for name, own in _held(settings, GONE).items():
        if {*own} >= GONE[name]:
            raise ValueError(f"{name} heads were saved, which version 0.2.0 of jat_graph had last")
    return {kind: JatConfig.from_dict(own) for kind, own in saved_kinds(settings).items()}


def saved_kinds(settings: object) -> dict[type[LayerHeads], dict[str, Any]]:
    """Return the same, unread: they may be of a newer version."""
    found = _held(settings, [kind.name for kind in KINDS])
    return {k: found[k.name] for k in KINDS if {*found.get(k.name, ())} >= OURS}


def _held(settings: object, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what a configuration, or a dict, holds by some names, if those are dicts."""
    fields = settings if isinstance(settings, dict) else vars(settings)
    return {name: fields[name] for name in names if isinstance(fields.get(name), dict)}


plain: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def built_plain() -> Iterator[None]:
    """Let a model be built without the heads of its configuration, as they are attached later."""
    token = plain.set(True)
    try:
        yield
    finally:
        plain.reset(token)


def warn_without_heads(model: nn.Module) -> None:
    """Warn of a model whose configuration, or that of a part, is about heads that it lacks."""
    parts = [p for p in model.modules() if isinstance(p, PreTrainedModel) and saved_kinds(p.config)]
    for part in parts[:1]:
        where = f" of {part.config.name_or_path}" if part.config.name_or_path else ""
        warnings.warn(
            f"{type(part).__name__}{where} was saved with heads of jat_graph, and runs without "
            "them: jat_graph.from_pretrained loads them",
            stacklevel=3,
        )


def check_without_weights(configs: KindConfigs, what: str) -> None:
    """Refuse heads whose weights transformers left in the folder when it loaded the model."""
    if any(kind.learns(config) for kind, config in configs.items()):
        raise ValueError(
            f"{what} has heads with weights of their own, which were not loaded: "
            "load it with jat_graph.from_pretrained"
        )


# Once a layer has its state, it is traced like any other.
@torch.compiler.disable(  # type: ignore[no-untyped-call, untyped-decorator]
    reason="heads that were loaded by attn_implementation need one call before torch.compile"
)
def start_layer(module: nn.Module) -> LayerState:
    """Make the state of an attention module whose model was loaded by transformers alone."""
    name, settings = type(module).__name__, module.config
    configs = saved_configs(settings)
    if not configs:
        raise ValueError(
            f"{name} runs on the attention of jat_graph, but its configuration has no settings of "
            "heads: load the model with jat_graph.from_pretrained, or use jat_graph.attach"
        )
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


def _heads(kind: type[LayerHeads], entry: AttentionModule, config: Any) -> LayerHeads | None:
    """Return the heads of a kind in a module; None where its layer has none."""
    module, settings = entry.module, entry.module.config
    index: Any = getattr(module, "layer_idx", None)
    alike = not any(isinstance(x, tuple) for x in vars(config.graph).values())  # no tables
    if index is None and (config.layers is not None or not alike):
        raise ValueError(f"{entry.name} does not know its layer: use jat_graph.from_pretrained")
    index = index or 0
    if settings.is_encoder_decoder and getattr(module, "is_decoder", False):
        index += settings.num_hidden_layers  # a decoder's layers come after those of the encoder
    if config.layers is None:
        return kind.in_module(entry, index, index, config)
    if index not in config.layers:
        return None
    return kind.in_module(entry, index, config.layers.index(index), config)
