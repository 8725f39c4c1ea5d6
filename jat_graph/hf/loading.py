"""Load a model with the heads that it was saved with."""

from __future__ import annotations

import inspect
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from jat_graph.hf.adapter import KINDS, attach, new_parameters, place, with_layers
from jat_graph.hf.interface import NAMES, find_attachment
from jat_graph.hf.jump_layer import JumpLayer
from jat_graph.hf.kinds import LayerHeads
from jat_graph.hf.modules import attention_modules
from jat_graph.hf.peft_settings import PLACE

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from jat_graph.nn.head_layers import ConvFactory

ADAPTER_OPTIONS = ("adapter_name", "is_trainable")
_stock: Any = PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]


def from_pretrained(
    auto_class: Any, path: str | Path = "", *, conv: ConvFactory | None = None, **kwargs: Any
) -> Any:
    """Load a model with the jump heads, triplet heads, or both, that it was saved with.

    Args:
        auto_class: ``AutoModel`` or one of its kind, or a model class of transformers. For an
            adapter also the base model itself, with or without those heads.
        path: Folder, or name on the Hub, of a model or of an adapter that PEFT saved.
        conv: What makes the layers of PyG of its jump heads, where it was saved with such that no
            settings can build. (default: None)
        kwargs: Arguments of ``auto_class.from_pretrained``: ``dtype``, ``config``, ``revision`` …
            ``attn_implementation`` is what :func:`detach` goes back to. (default: ``"sdpa"``)
            For an adapter ``is_trainable`` and ``adapter_name`` as well.

    Returns:
        The model, with ``config.jat`` and ``config.triplet`` attached, where it has them; for an
        adapter the ``PeftModel`` around it.

    Raises:
        ValueError: If the model was saved without jump heads, or by a newer version, or with layers
            that must be given; or a base model has others than its adapter.
        OSError: If there is no such model.

    Example:
        >>> import jat_graph
        >>> from tempfile import TemporaryDirectory
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> model = jat_graph.attach(model, jat_graph.JatConfig.stones())
        >>> with TemporaryDirectory() as folder:
        ...     model.save_pretrained(folder)
        ...     loaded = jat_graph.from_pretrained(BertModel, folder)
        >>> jat_graph.hf.attached_config(loaded).graph.kind
        'stones'
    """
    if not path or not hasattr(auto_class, "from_pretrained"):
        raise ValueError(
            f"from_pretrained takes a class of transformers and a folder, as in from_pretrained("
            f"AutoModel, {str(path) or 'FOLDER'!r}), got {auto_class!r} and {str(path)!r}"
        )
    adapter = _adapter_file(auto_class, path, kwargs)
    if adapter is not None:
        return _load_adapter(auto_class, path, adapter, conv, kwargs)
    saved = {kind: _saved_settings(path, kwargs, kind.name) for kind in KINDS}
    configs = {
        kind: with_layers(kind.config_class.from_dict(settings), _own(kind, conv))
        for kind, settings in saved.items()
        if settings is not None
    }
    if not configs:
        raise ValueError(
            f"{path} was saved without jump heads; load it as transformers does by itself, and use "
            "jat_graph.attach"
        )
    if kwargs.get("attn_implementation", NAMES[0]) in NAMES:
        kwargs["attn_implementation"] = "sdpa"
    learning = {kind: config for kind, config in configs.items() if kind.learns(config)}
    if learning:
        loaded = _load_learned(auto_class, path, learning, conv, kwargs)
    else:
        loaded = auto_class.from_pretrained(path, **kwargs)
    # With output_loading_info=True it is the model and a report.
    model = loaded[0] if isinstance(loaded, tuple) else loaded
    for kind, config in configs.items():
        attach(model, config, conv=_own(kind, conv))
    return loaded


def _adapter_file(auto_class: Any, path: str | Path, kwargs: dict[str, Any]) -> str | None:
    """Return where an adapter's settings are; None for a model, whose folder may hold one, too."""
    from transformers.utils.peft_utils import find_adapter_config_file

    at_hand = isinstance(auto_class, torch.nn.Module)
    if not at_hand and Path(path, "config.json").is_file():
        return None
    known = inspect.signature(find_adapter_config_file).parameters
    options = {name: value for name, value in kwargs.items() if name in known}
    found: str | None = find_adapter_config_file(str(path), **options)
    if at_hand and found is None:
        raise ValueError(f"{path} must hold an adapter for a model at hand, got none")
    return found


def _load_adapter(
    base: Any, path: str | Path, file: str, conv: ConvFactory | None, kwargs: dict[str, Any]
) -> Any:
    """Load an adapter of PEFT on its base model, or on the one at hand."""
    from peft import PeftConfig, PeftModel

    fields = PeftConfig.from_json_file(file)
    saved = fields.pop(PLACE, None)
    if saved is None:
        raise ValueError(
            f"{path} was saved without jump heads; load it with peft, and use jat_graph.attach"
        )
    options = {name: kwargs.pop(name) for name in ADAPTER_OPTIONS if name in kwargs}
    if not isinstance(base, torch.nn.Module):
        base = base.from_pretrained(_base_of(path, fields), **kwargs)
    configs = {
        kind: kind.config_class.from_dict(saved[kind.name]) for kind in KINDS if kind.name in saved
    }
    attachment = find_attachment(base)
    if attachment is None:
        for kind, config in configs.items():
            attach(base, config, conv=_own(kind, conv))
    elif attachment.configs != configs:
        raise ValueError(
            f"{type(base).__name__} must have the heads that the adapter in {path} was trained "
            "with, got others; jat_graph.detach them, and those of the adapter are attached"
        )
    config = PeftConfig.from_peft_type(**fields)  # type: ignore[no-untyped-call]
    return PeftModel.from_pretrained(base, str(path), config=config, **options)


def _base_of(path: str | Path, fields: dict[str, Any]) -> str:
    """Return the model that an adapter was made for."""
    base: str | None = fields.get("base_model_name_or_path")
    if not base:
        raise ValueError(f"{path} names no base model; from_pretrained(MODEL, FOLDER) takes one")
    return base


def _own(kind: type[LayerHeads], conv: ConvFactory | None) -> ConvFactory | None:
    """Return the layers for jump heads; other kinds have none."""
    return conv if kind is JumpLayer else None


def _saved_settings(path: str | Path, kwargs: dict[str, Any], name: str) -> dict[str, Any] | None:
    from transformers import PreTrainedConfig

    config: PreTrainedConfig | None = kwargs.get("config")
    if isinstance(config, PreTrainedConfig):
        settings = getattr(config, name, None)
    else:
        place = path if config is None else config
        settings = PreTrainedConfig.get_config_dict(place, **kwargs)[0].get(name)
    if settings is not None and not isinstance(settings, dict):
        raise ValueError(f"config.{name} of {path} must be a dictionary, got {settings!r}")
    return settings


def _load_learned(
    auto_class: Any,
    path: str | Path,
    configs: dict[type[LayerHeads], Any],
    conv: ConvFactory | None,
    kwargs: dict[str, Any],
) -> Any:
    """Load a model, and with it what its heads learned."""
    own = _model_class(auto_class, path, kwargs)

    brought: list[tuple[torch.nn.Module, str]] = []

    def build(self: PreTrainedModel, *args: Any, **options: Any) -> None:
        own.__init__(self, *args, **options)
        found = attention_modules(self)
        for kind, config in configs.items():
            for module, name, made in new_parameters(place(kind, found, config, conv)):
                setattr(module, name, made)
                brought.append((module, name))

    # transformers fills the parameters that a class has once it is built: the new ones must be
    # among them, and the model must be of its own class again afterwards.
    building: Any = type(own.__name__, (own,), {"__init__": build, "__module__": own.__module__})
    model, report = building.from_pretrained(path, **kwargs | {"output_loading_info": True})
    model.__class__ = own
    places = {module: place for place, module in model.named_modules()}
    for module, name in brought:  # what the folder lacks, attach makes
        if any(key.startswith(f"{places[module]}.{name}.") for key in report["missing_keys"]):
            delattr(module, name)
    return (model, report) if kwargs.get("output_loading_info") else model


def _model_class(auto_class: Any, path: str | Path, kwargs: dict[str, Any]) -> Any:
    """Return the class that an auto class takes for a saved model."""
    from transformers import AutoConfig

    if issubclass(auto_class, PreTrainedModel):
        return auto_class
    options = dict(kwargs)
    config = options.pop("config", None)
    if not hasattr(config, "model_type"):
        config = AutoConfig.from_pretrained(path if config is None else config, **options)
    with torch.device("meta"):  # no weights
        return type(auto_class.from_config(config, attn_implementation="sdpa"))


@wraps(_stock)
def _load_by_name(
    cls: type[PreTrainedModel],
    pretrained_model_name_or_path: str | Path | None,
    *model_args: Any,
    **kwargs: Any,
) -> Any:
    """Stand for ``PreTrainedModel.from_pretrained``: whoever asks for our attention gets heads.

    The attention function itself is only called when weights that transformers' classes lack are
    long dropped, and nobody tells it which model is around the module that calls it.
    """
    in_config = getattr(kwargs.get("config"), "_attn_implementation", None)
    if (kwargs.get("attn_implementation") or in_config) in NAMES and not model_args:
        return from_pretrained(cls, pretrained_model_name_or_path, **kwargs)  # type: ignore[arg-type]
    loaded = _stock(cls, pretrained_model_name_or_path, *model_args, **kwargs)
    config = (loaded[0] if isinstance(loaded, tuple) else loaded).config
    if config._attn_implementation not in NAMES:
        _forget_heads(config)
    return loaded


def _forget_heads(config: PreTrainedConfig) -> None:
    """Take the settings of heads that a model was loaded without, so that it is saved without."""
    for kind in KINDS:
        try:
            kind.config_class.from_dict(getattr(config, kind.name, None))
        except (TypeError, ValueError):  # none, or somebody else's
            continue
        delattr(config, kind.name)


PreTrainedModel.from_pretrained = classmethod(_load_by_name)  # type: ignore[assignment]
