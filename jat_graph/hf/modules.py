"""Find the attention modules of a model, and say which of them can have jump heads."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from transformers import PreTrainedModel

CROSS = "it is cross-attention"
NO_SDPA = "its model does not support scaled dot product attention"
INTERFACE = "ALL_ATTENTION_FUNCTIONS"
# Parameters of attention whose keys may come from elsewhere than its queries.
SEPARATE_KEYS = ({"key", "value"}, {"keys", "values"}, {"latents", "context"})


@dataclass(frozen=True)
class AttentionModule:
    """An attention module that goes through transformers' attention interface.

    Args:
        name: Its path in the model.
        module: The module.
        left_alone: Why it stays on stock attention; None if it is self-attention that can jump.
    """

    name: str
    module: nn.Module
    left_alone: str | None

    @property
    def config(self) -> Any:
        """The configuration that names its attention function; layers share it."""
        return self.module.config

    @property
    def is_causal(self) -> bool:
        """Tell whether it masks later tokens; transformers' default is that it does."""
        return bool(getattr(self.module, "is_causal", True))

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        for name in ("num_heads", "num_attention_heads", "n_heads", "n_head"):
            number = getattr(self.module, name, None)
            if isinstance(number, int):
                return number
        number = getattr(self.config, "num_attention_heads", None)
        if not isinstance(number, int):
            raise ValueError(f"{self.name} must say its number of heads, got {number!r}")
        return number


def head_size(module: nn.Module) -> int:
    """Return the number of features of a head of an attention module."""
    sizes = (getattr(module, name, None) for name in ("head_dim", "attention_head_size"))
    config: Any = module.config
    default = config.hidden_size // config.num_attention_heads
    return next((size for size in sizes if isinstance(size, int)), default)


def transformer_of(model: nn.Module) -> PreTrainedModel:
    """Return the model of transformers inside a PEFT model, or the model itself."""
    from transformers import PreTrainedModel

    wrapper: Any = model
    base = wrapper.get_base_model() if hasattr(model, "get_base_model") else model
    if not isinstance(base, PreTrainedModel):
        raise ValueError(f"model must be a model of transformers, got {type(base).__name__}")
    return base


def attention_modules(model: PreTrainedModel) -> list[AttentionModule]:
    """Return the modules that go through the attention interface, in ``named_modules`` order."""
    found = [
        AttentionModule(
            name, module, why_left_alone(module, name) if runs_on_sdpa(model, module) else NO_SDPA
        )
        for name, module in model.named_modules()
        if _dispatches(module)
    ]
    for entry in found:
        _check_arguments(entry)
    if not any(entry.left_alone is None for entry in found):
        reason = _why_none(model, found)
        raise ValueError(f"{type(model).__name__} cannot have jump heads: {reason}")
    return found


def serves_several_layers(modules: list[AttentionModule]) -> bool:
    """Tell whether the modules are fewer than the layers because layers share them (ALBERT)."""
    config = modules[0].config
    return (
        len(modules) < config.num_hidden_layers if hasattr(config, "num_hidden_groups") else False
    )


def model_parts(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """Yield the model and every model of transformers inside it."""
    from transformers import PreTrainedModel

    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            yield module


def layers_around(model: nn.Module, modules: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the layers in which some modules are, or the modules themselves outside of any.

    Gradient checkpointing keeps the arguments of a layer, and its hooks run before that.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer  # loads all of AutoModel

    around = {
        inner: layer
        for layer in model.modules()
        if isinstance(layer, GradientCheckpointingLayer)
        for inner in layer.modules()
    }
    return list({around.get(module, module): None for module in modules})


def runs_on_sdpa(model: PreTrainedModel, module: nn.Module) -> bool:
    """Tell whether the part of the model that owns a module can run on SDPA and its masks."""
    config: Any = module.config
    owners = [part for part in model_parts(model) if part.config is config]
    return all(part._supports_sdpa for part in owners)


def _dispatches(module: nn.Module) -> bool:
    """Tell whether a module's forward looks its attention function up in the interface."""
    forward = inspect.unwrap(type(module).forward)
    code = getattr(forward, "__code__", None)
    return code is not None and INTERFACE in code.co_names and hasattr(module, "config")


def takes_any_argument(kind: type[nn.Module]) -> bool:
    """Tell whether modules of a class take arguments that they do not know, to hand them on."""
    parameters = inspect.signature(kind.forward).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def why_left_alone(module: nn.Module, name: str = "") -> str | None:
    """Return why a module stays on stock attention; None if it is self-attention."""
    parameters = set(inspect.signature(type(module).forward).parameters)
    if _is_cross_attention(name, module):
        return CROSS
    if any(names <= parameters for names in SEPARATE_KEYS):
        return "its keys may come from elsewhere than its queries"
    if "position_bias" in parameters:
        return "it adds a position bias to its scores"
    return None


def _is_cross_attention(name: str, module: nn.Module) -> bool:
    if "CrossAttention" in type(module).__name__ or getattr(module, "is_cross_attention", False):
        return True
    if getattr(module, "is_decoder", False) and not getattr(module, "is_causal", False):
        return True
    return any(part.startswith("cross") or part == "encoder_attn" for part in name.split("."))


def _check_arguments(entry: AttentionModule) -> None:
    """Refuse modules whose scores are changed in a way that SDPA cannot follow."""
    changes = {"attn_logit_softcapping": "caps its scores", "sinks": "has attention sinks"}
    for attribute, what in changes.items():
        if getattr(entry.module, attribute, None) is not None:
            raise ValueError(
                f"{type(entry.module).__name__} ({entry.name}) cannot have jump heads: it {what}, "
                "which scaled dot product attention does not support"
            )


def _why_none(model: PreTrainedModel, found: list[AttentionModule]) -> str:
    reasons = {
        f"{type(entry.module).__name__} is left alone, because {why}": None
        for entry in found
        if (why := entry.left_alone) != CROSS
    }
    if reasons:
        return "; ".join(reasons)
    names = sorted({type(m).__name__ for m in model.modules() if _computes_attention(m)})
    return (
        f"its attention ({', '.join(names) or 'none found'}) "
        "does not go through transformers' attention interface"
    )


def _computes_attention(module: nn.Module) -> bool:
    """Tell whether a module seems to be attention itself, rather than a block around it."""
    inner = list(module.modules())[1:]
    return _is_attention(module) and not any(_is_attention(child) for child in inner)


def _is_attention(module: nn.Module) -> bool:
    return "Attention" in type(module).__name__
