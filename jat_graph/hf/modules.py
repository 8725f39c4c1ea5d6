"""Find the attention modules of a model; what is around them, and what all kinds of heads share."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from jat_graph.core.compiling import knows_no_contexts, setting
from jat_graph.core.heads import HeadParts
from jat_graph.hf.inputs import why_left_alone
from jat_graph.hf.names import NO_INTERFACE, NO_SDPA
from jat_graph.hf.reasons import CROSS, NO_NAME, SDPA_LACKS, asking_forward

if TYPE_CHECKING:
    from jat_graph.hf.inputs import AttentionInputs
    from jat_graph.jumps.config import JatConfig

# Marks of the contexts that this thread or task is inside.
_inside: ContextVar[tuple[object, ...]] = ContextVar("inside", default=())


@dataclass(frozen=True)
class AttentionModule:
    """An attention module of a model."""

    name: str  # its path in the model
    module: Any
    left_alone: str | None  # why it stays on stock attention; None if heads of ours can read it

    @property
    def is_causal(self) -> bool:
        """Tell whether it masks later tokens; transformers' default is that it does."""
        return bool(getattr(self.module, "is_causal", True))

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        names = ("num_heads", "num_attention_heads", "n_heads", "n_head")
        numbers = (getattr(self.module, name, None) for name in names)
        number = next((number for number in numbers if isinstance(number, int)), None)
        return int(self.module.config.num_attention_heads if number is None else number)


def head_size(module: Any) -> int:
    """Return the number of features of a head of an attention module."""
    sizes = (getattr(module, name, None) for name in ("head_dim", "attention_head_size"))
    default = module.config.hidden_size // module.config.num_attention_heads
    return next((size for size in sizes if isinstance(size, int)), default)


def execution_device(module: nn.Module) -> torch.device | None:
    """Return where accelerate runs a module whose weights it may keep elsewhere; else None."""
    for part in module.modules():
        hook: Any = getattr(part, "_hf_hook", None)
        for one in getattr(hook, "hooks", (hook,)):
            device = getattr(one, "execution_device", None)
            if device is not None:
                return torch.device(device)
    return None


def transformer_of(model: nn.Module) -> PreTrainedModel:
    """Return the one model of transformers in a wrapper, as PEFT's is, or the model itself."""
    parts = model_parts(model) if isinstance(model, nn.Module) else []
    inner = {module for part in parts for module in part.modules() if module is not part}
    found = [part for part in parts if part not in inner]
    if len(found) != 1:
        got = ", ".join(type(part).__name__ for part in found) or type(model).__name__
        raise ValueError(f"model must be a model of transformers, or hold one, got {got}")
    return found[0]


def find_attention(model: PreTrainedModel) -> list[AttentionModule]:
    """Return the modules that compute attention, in ``named_modules`` order."""
    parts = model_parts(model)
    found: list[AttentionModule] = []
    for name, module in model.named_modules():
        if asking_forward(type(module)) and hasattr(module, "config"):
            owners = [part for part in parts if part.config is module.config]
            why = why_left_alone(module, name)
            if why not in NO_NAME and not all(part._supports_sdpa for part in owners):
                why = NO_SDPA
            found.append(AttentionModule(name, module, why))
        elif "Attention" in type(module).__name__:
            # The inmost ones compute it; others are blocks around them.
            inner = [type(part) for part in module.modules() if part is not module]
            if not any("Attention" in kind.__name__ or asking_forward(kind) for kind in inner):
                found.append(AttentionModule(name, module, NO_INTERFACE))
    return found


def attention_modules(model: PreTrainedModel) -> list[AttentionModule]:
    """Return the modules that go through the attention interface, one that can have heads."""
    found = find_attention(model)
    asking = [entry for entry in found if entry.left_alone != NO_INTERFACE]
    name = type(model).__name__
    for entry in asking:
        if entry.left_alone in SDPA_LACKS.values():
            got = f"{type(entry.module).__name__} ({entry.name})"
            raise ValueError(f"{got} cannot have heads of jat_graph: {entry.left_alone}")
    if not any(entry.left_alone is None for entry in asking):
        kinds = [e for e in found if e.left_alone != CROSS] or found
        own = {type(e.module).__name__: e.left_alone for e in kinds}
        why = "; ".join(f"{kind} is left unchanged, because {why}" for kind, why in own.items())
        raise ValueError(f"{name} cannot have heads of jat_graph: {why or 'it has no attention'}")
    return asking


def serves_several_layers(modules: list[AttentionModule]) -> bool:
    """Tell whether the modules are fewer than the layers because layers share them (ALBERT)."""
    config = modules[0].module.config
    return hasattr(config, "num_hidden_groups") and len(modules) < config.num_hidden_layers


def model_parts(model: nn.Module) -> list[PreTrainedModel]:
    """Return every model of transformers in a model, itself first."""
    return [module for module in model.modules() if isinstance(module, PreTrainedModel)]


def layers_around(model: nn.Module, modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the layers of some modules, whose arguments gradient checkpointing keeps, or these."""
    from transformers.modeling_layers import GradientCheckpointingLayer  # loads all of AutoModel

    around = {
        inner: layer
        for layer in model.modules()
        if isinstance(layer, GradientCheckpointingLayer)
        for inner in layer.modules()
    }
    return list({around.get(module, module): None for module in modules})


@contextmanager
def layers_get(layers: Iterable[nn.Module], name: str, value: Any) -> Iterator[None]:
    """Hand layers one more argument, which gradient checkpointing keeps, inside the ``with``.

    Calls of other threads and tasks do not get it, unless they are compiled.
    """
    mark = object()

    def hand(module: nn.Module, args: Any, own: dict[str, Any] | None = None) -> Any:
        inside = torch.compiler.is_compiling() or mark in _inside.get()
        foreign = not inside and not _inside.get() and knows_no_contexts()
        # Without its arguments it is called where another thread is just taking it off.
        return (args, {**own, name: value}) if own is not None and (inside or foreign) else None

    hooks = add_hooks([(layer, hand) for layer in layers])
    try:
        with setting(_inside, (*_inside.get(), mark)):
            yield
    finally:
        remove_hooks(hooks)


def add_hooks(hooks: list[tuple[nn.Module, Any]]) -> list[RemovableHandle]:
    """Let hooks see what their modules are called with."""
    return [module.register_forward_pre_hook(hook, with_kwargs=True) for module, hook in hooks]


def remove_hooks(handles: list[RemovableHandle]) -> None:
    """Take hooks off their modules, and forget them."""
    while handles:
        handles.pop().remove()


def takes_any_argument(kind: type[nn.Module]) -> bool:
    """Tell whether modules of a class take arguments that they do not know, to hand them on."""
    parameters = inspect.signature(kind.forward).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


HeadsByModule: TypeAlias = "dict[nn.Module, AttachedHeads]"
ConfigsByKind: TypeAlias = "dict[type[AttachedHeads], JatConfig]"


@dataclass(frozen=True)
class AttachedHeads(ABC):
    """The heads of one kind in one attention module; each subclass is a kind."""

    index: int  # of the layer, as the library counts
    heads: tuple[int, ...]  # in rising order
    num_heads: int  # of the layer
    config: JatConfig  # over ``heads`` where they differ from head to head

    graphs: ClassVar[tuple[type[Any], ...]]  # of its settings
    name: ClassVar[str]  # where a model's configuration holds and saves the settings
    word: ClassVar[str]  # what the kind is called in messages
    learns: ClassVar[tuple[str, ...]] = ()  # names of what their module may get to learn

    @classmethod
    def in_modules(cls, modules: list[AttentionModule], config: JatConfig) -> HeadsByModule:
        """Return the heads of each module that gets some; what needs no input is checked."""
        found = [entry for entry in modules if entry.left_alone is None]
        if config.layers is not None and serves_several_layers(found):
            why = f"one {type(found[0].module).__name__} serves several layers of this model"
            raise ValueError(f"layers must be None, because {why}, got {config.layers}")
        layers = config.layer_indices(len(found))
        for name, table in config.graph.tables().items():
            if len(table) != len(layers):
                wanted = f"{len(layers)} rows, one for each layer, got {len(table)}"
                raise ValueError(f"{name} table must have {wanted}")
        made = {}
        for row, index in enumerate(layers):
            heads = cls.in_module(found[index], index, row, config)
            if heads is not None:
                made[found[index].module] = heads
        if not made:
            got = f"{type(found[0].module).__name__} reads within a window in all layers"
            raise ValueError(f"{got}, which needs no {cls.word} heads")
        return made

    @classmethod
    def in_module(
        cls, entry: AttentionModule, index: int, row: int, config: JatConfig
    ) -> AttachedHeads | None:
        """Return the heads of one module, the ``row``-th that gets some; None if it needs none."""
        heads = config.head_indices(entry.num_heads)
        return cls(index, heads, entry.num_heads, config.for_layer(row, heads))

    def new_parameters(self, module: nn.Module, conv: Any) -> dict[str, nn.Module]:
        """Return what the module gets to learn with these heads, and does not have yet, by name."""
        return {}

    @abstractmethod
    def is_identity(self, module: nn.Module) -> bool:
        """Tell whether all of them are ordinary heads, by the settings or what they learned."""

    @abstractmethod
    def describe(self, module: nn.Module) -> str:
        """Return in a few words what the heads do."""

    @abstractmethod
    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return how each of the heads reads; the inputs are of these alone, counted from 0."""


def spread(value: Any, unset: str = "", form: str = "g") -> str:
    """Return a number, or the least and the largest of a table with one row, and what None is."""
    entries = value[0] if isinstance(value, tuple) else (value,)
    numbers = sorted(entry for entry in entries if entry is not None)
    ends = dict.fromkeys(f"{end:{form}}" for end in (*numbers[:1], *numbers[-1:]))
    return " or ".join([" to ".join(ends)] * bool(ends) + [unset] * (None in entries))
