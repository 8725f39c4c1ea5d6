"""Load a model with the heads that it was saved with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils.peft_utils import find_adapter_config_file

from jat_graph.files import read_object
from jat_graph.hf.adapter import attach_saved, find_attachment, new_parameters, with_layers
from jat_graph.hf.kinds import KindConfigs
from jat_graph.hf.modules import attention_modules
from jat_graph.hf.saving import warn_of_unused_settings
from jat_graph.hf.state import ADAPTER_NOTE, HEADS_FILE, NAME, NAMES, saved_configs

if TYPE_CHECKING:
    from jat_graph.nn.head_layers import ConvFactory

ADAPTER_OPTIONS = ("adapter_name", "is_trainable")
HUB_OPTIONS = ("cache_dir", "local_files_only", "revision", "subfolder", "token")


def from_pretrained(
    auto_class: Any, path: str | Path = "", *, conv: ConvFactory | None = None, **kwargs: Any
) -> Any:
    """Load a model with the heads of this library that it was saved with.

    Args:
        auto_class: ``AutoModel`` or one of its kind, or a model class of transformers. For an
            adapter also the base model itself, with or without those heads.
        path: Folder, or name on the Hub, of a model, or of an adapter of PEFT.
        conv: What makes its layers of PyG, where no settings can build them. (default: None)
        kwargs: Arguments of ``auto_class.from_pretrained``; ``attn_implementation`` is what
            :func:`detach` goes back to, ``"sdpa"`` by default. For an adapter ``is_trainable`` and
            ``adapter_name`` as well.

    Returns:
        The model, with the heads of its configuration attached; for an adapter the ``PeftModel``
        around it, with the heads of ``jat_config.json`` beside it, or else its base model's own.

    Raises:
        ValueError: If the model was saved without heads, by a newer version, or with layers that
            must be given; or a base model has other heads than its adapter.
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
    at_hand, adapter = isinstance(auto_class, torch.nn.Module), None
    if at_hand or not Path(path, "config.json").is_file():  # a model's folder may hold one, too
        where = {name: kwargs[name] for name in HUB_OPTIONS if name in kwargs}
        adapter = find_adapter_config_file(str(path), **where)
    if at_hand and adapter is None:
        raise ValueError(f"{path} must hold an adapter for a model at hand, got none")
    if adapter is not None:
        return _load_adapter(auto_class, path, adapter, conv, kwargs)
    saved = saved_configs(_config_of(path, kwargs))
    configs = {kind: with_layers(config, conv) for kind, config in saved.items()}
    if not configs:
        raise ValueError(
            f"{path} was saved without jump heads; load it plain, and use jat_graph.attach"
        )
    if kwargs.get("attn_implementation", NAME) in NAMES:
        kwargs["attn_implementation"] = "sdpa"
    if any(kind.learns(config) for kind, config in configs.items()):
        loaded = _load_learned(auto_class, path, configs, conv, kwargs)
    else:
        loaded = auto_class.from_pretrained(path, **kwargs)
    # With output_loading_info=True it is the model and a report.
    model = loaded[0] if isinstance(loaded, tuple) else loaded
    attach_saved(model, configs, conv)
    return loaded


def _load_adapter(
    base: Any, path: str | Path, file: str, conv: ConvFactory | None, kwargs: dict[str, Any]
) -> Any:
    """Load an adapter of PEFT on its base model, or on the one at hand."""
    from peft import PeftConfig, PeftModel
    from transformers.utils.hub import cached_file

    fields = PeftConfig.from_json_file(file)
    where = {name: kwargs[name] for name in HUB_OPTIONS if name in kwargs}
    beside = cached_file(
        str(path), HEADS_FILE, _raise_exceptions_for_missing_entries=False, **where
    )
    noted = fields.pop(ADAPTER_NOTE, {})
    configs = saved_configs(noted if beside is None else read_object(beside, "settings of heads"))
    options = {name: kwargs.pop(name) for name in ADAPTER_OPTIONS if name in kwargs}
    if not isinstance(base, torch.nn.Module):
        name = fields.get("base_model_name_or_path")
        if not name:
            raise ValueError(f"{path} names no base model; from_pretrained(MODEL, FOLDER) does")
        if saved_configs(_config_of(name, kwargs)):
            base = from_pretrained(base, name, conv=conv, **kwargs)
        elif configs:
            base = base.from_pretrained(name, **kwargs)
        else:
            raise ValueError(
                f"{path} has no {HEADS_FILE}, and its base model no heads: save it by "
                "jat_graph.save_pretrained, or load it with peft and use jat_graph.attach"
            )
    attachment = find_attachment(base)
    if attachment is None:
        attach_saved(base, configs, conv)
    elif configs and attachment.configs != configs:
        raise ValueError(
            f"{type(base).__name__} must have the heads that the adapter in {path} was trained "
            "with, got others; jat_graph.detach them, and those of the adapter are attached"
        )
    warn_of_unused_settings(base)
    config = PeftConfig.from_peft_type(**fields)  # type: ignore[no-untyped-call]
    return PeftModel.from_pretrained(base, str(path), config=config, **options)


def _config_of(path: str | Path, kwargs: dict[str, Any]) -> PreTrainedConfig | dict[str, Any]:
    config = kwargs.get("config")
    if isinstance(config, PreTrainedConfig):
        return config
    settings, _ = PreTrainedConfig.get_config_dict(config or path, **kwargs)
    return dict(settings)


def _load_learned(
    auto_class: Any,
    path: str | Path,
    configs: KindConfigs,
    conv: ConvFactory | None,
    kwargs: dict[str, Any],
) -> Any:
    """Load a model, and with it what its heads learned."""
    own = auto_class
    if not issubclass(auto_class, PreTrainedModel):  # an auto class takes another
        options = dict(kwargs)
        config = options.pop("config", None)
        if not hasattr(config, "model_type"):
            config = AutoConfig.from_pretrained(path if config is None else config, **options)
        with torch.device("meta"):  # no weights
            own = type(auto_class.from_config(config, attn_implementation="sdpa"))
    brought: list[tuple[torch.nn.Module, str]] = []

    def build(self: PreTrainedModel, *args: Any, **options: Any) -> None:
        own.__init__(self, *args, **options)
        found = attention_modules(self)
        for kind, config in configs.items():
            for module, name, made in new_parameters(kind.in_modules(found, config), conv):
                setattr(module, name, made)
                brought.append((module, name))

    # transformers fills the parameters that a class has once it is built: the new ones must be
    # among them, and the model must be of its own class again afterwards.
    building: Any = type(own.__name__, (own,), {"__init__": build, "__module__": own.__module__})
    model, report = building.from_pretrained(path, **kwargs | {"output_loading_info": True})
    model.__class__ = own
    paths = {module: path for path, module in model.named_modules()}
    for module, name in brought:  # what the folder lacks, attach makes
        if any(key.startswith(f"{paths[module]}.{name}.") for key in report["missing_keys"]):
            delattr(module, name)
    return (model, report) if kwargs.get("output_loading_info") else model
