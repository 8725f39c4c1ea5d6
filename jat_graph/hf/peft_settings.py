"""Adapters of PEFT take the settings of the heads along that they were trained beside."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from jat_graph.hf.card import write_adapter_card
from jat_graph.hf.describing import summary

if TYPE_CHECKING:
    from jat_graph.hf.interface import Attachment

# Where an adapter's own settings hold those of the heads. PEFT warns of names that it does not
# know, and so of an adapter that is loaded without the heads: the name says what to do.
PLACE = "jump heads: load it with jat_graph.from_pretrained"


def carry_settings(attachment: Attachment, base: nn.Module, prefix: str, keep_vars: bool) -> None:
    """Let the adapters of an attached model, whose weights are asked for, save its settings, too.

    Whatever saves an adapter asks for its weights first: PEFT, transformers, and both their
    trainers.
    """
    settings = {kind.name: config.to_dict() for kind, config in attachment.configs.items()}
    said = type(base).__name__, summary(base), settings
    for adapter in _adapters(base):
        vars(adapter)["to_dict"] = partial(_with_settings, adapter, settings)
        vars(adapter)["save_pretrained"] = partial(_save_with_card, adapter, said)


def carry_nothing(base: nn.Module) -> None:
    """Let the adapters of a model save their own settings only."""
    for adapter in _adapters(base):
        for name in ("to_dict", "save_pretrained"):
            vars(adapter).pop(name, None)


def _adapters(base: nn.Module) -> list[Any]:
    """Return the settings of a model's adapters, which PEFT leaves on it."""
    return list(getattr(base, "peft_config", {}).values())


def _with_settings(adapter: Any, settings: dict[str, Any]) -> dict[str, Any]:
    return {**type(adapter).to_dict(adapter), PLACE: settings}


def _save_with_card(
    adapter: Any, said: tuple[str, str, dict[str, Any]], save_directory: str, **options: Any
) -> None:
    """Save an adapter's settings; PEFT has left a card of empty lines there before."""
    type(adapter).save_pretrained(adapter, save_directory, **options)
    write_adapter_card(save_directory, *said)
