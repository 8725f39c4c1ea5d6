"""What transformers finds of ours by name, and what a model's configuration holds of heads.

Importing it registers a hook with torch that sees models being built. It loads no heads.
"""

from __future__ import annotations

import sys
import warnings
from contextvars import ContextVar
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from transformers import PreTrainedModel

NAME = "jat"
# What folders name: transformers quotes it where nobody has imported us, and cannot load them.
SAVED_NAME = "jat (import jat_graph.hf first)"
NAMES = (NAME, SAVED_NAME)
KIND_NAMES = ("jat", "jat_clusters")  # where a configuration holds the settings of each kind
OURS = {"heads", "layers"}  # what settings of ours always hold

# What layers hand on to their attention.
GLOBAL = "global_attention_mask"  # as Longformer calls it
INPUTS = "jat_inputs"  # the cache, which an attention module hands on itself
GRAPHS = "jat_graphs"  # those of jat_graph.using_graphs
EXCLUDED = "jat_excluded"  # tokens that never vote and are never stones
INDICES = ("indices", "block_indices")
SDPA_IGNORES = ("s_aux", "sinks", *INDICES)  # what it would silently leave out

CLUSTERED = "clustered"  # and names of it with settings, after a colon
NO_SDPA = "its model does not support scaled dot product attention"
NO_INTERFACE = "it does not go through transformers' attention interface"
MARK = "_jat_name"  # by which pickles of models on a name import this package

# Whether models are built without the heads of their configuration, which are attached later.
plain: ContextVar[bool] = ContextVar("plain", default=False)


def saved_settings(settings: object) -> dict[str, dict[str, Any]]:
    """Return the settings of heads that a configuration, or a dict, holds, by kind and unread."""
    found = settings if isinstance(settings, dict) else vars(settings)
    named = {name: found[name] for name in KIND_NAMES if isinstance(found.get(name), dict)}
    return {name: own for name, own in named.items() if {*own} >= OURS}


def warn_without_heads(model: nn.Module) -> None:
    """Warn of a model whose configuration, or that of a part, is about heads that it lacks."""
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and saved_settings(part.config):
            where = f" of {part.config.name_or_path}" if part.config.name_or_path else ""
            warnings.warn(
                f"{type(part).__name__}{where} was saved with heads of jat_graph, and runs without "
                "them: jat_graph.from_pretrained loads them",
                stacklevel=3,
            )
            return


def refuse_name(model: str, config: Any, why: str | None) -> NoReturn:
    """Refuse what cannot run on a name of ours, as transformers refuses it on SDPA."""
    cure = "take 'eager', in a model of several parts by a dict with a name for each"
    name = config._attn_implementation
    raise ValueError(f"{model} cannot run on {name!r}, because {why}; {cure}")


def check_built(module: PreTrainedModel) -> None:
    """Refuse a model on clusters by name that could not be on SDPA; mark another."""
    kind = type(module)
    why = None if module._supports_sdpa else NO_SDPA
    if why is None and kind.__module__.startswith("transformers."):
        named = vars(sys.modules[kind.__module__])
        table = any(name.endswith("_ATTENTION_CLASSES") for name in named)
        why = NO_INTERFACE if table or not module._can_set_attn_implementation() else None
    if why is not None:
        refuse_name(kind.__name__, module.config, why)
    module.__dict__[MARK] = check_built


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def lacks_sdpa(config: Any) -> bool:
    """Tell whether no model with such a class of configuration supports SDPA."""
    kinds = [PreTrainedModel]
    for kind in kinds:  # which grows by those below
        kinds += kind.__subclasses__()
    for known in config.__mro__:  # somebody's own may have no models
        flags = [kind._supports_sdpa for kind in kinds if kind.config_class is known]
        if flags:
            return not any(flags)
    return False


def note_saved_heads(module: nn.Module, name: str, child: nn.Module | None) -> None:
    """Note on a model that is being built what it has by name, or warn that it has no heads."""
    # Torch calls it before any module gets a part; a model of transformers has settings then.
    if module._modules or not isinstance(module, PreTrainedModel) or plain.get():
        return
    settings: Any = module.config
    if str(settings._attn_implementation).partition(":")[0] == CLUSTERED:
        check_built(module)
    if saved_settings(settings) and settings._attn_implementation in NAMES:
        settings.attn_implementation = SAVED_NAME  # for the next save
    elif saved_settings(settings):
        warn_without_heads(module)


register_module_module_registration_hook(note_saved_heads)
