"""Say which heads a model has, save it with a card that says so, and load it with its heads."""

from __future__ import annotations

import json
import re
import textwrap
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils.peft_utils import find_adapter_config_file

from jat_graph.core.compiling import setting
from jat_graph.core.files import check_model_name, read_object, write_text
from jat_graph.core.heads import neighbours
from jat_graph.hf.adapter import add_parameters, attach_saved, find_attachment, with_layers
from jat_graph.hf.by_name import graph_by_name
from jat_graph.hf.interface import setting_of
from jat_graph.hf.modules import ConfigsByKind, attention_modules, model_parts, transformer_of
from jat_graph.hf.names import CLUSTERED, NAME, NAMES, plain, warn_without_heads
from jat_graph.hf.state import heads_of, learn, saved_configs
from jat_graph.hf.support import LayerSupport, support_lines, supports

if TYPE_CHECKING:
    from jat_graph.nn.conv_factory import ConvFactory


ADAPTER_FILE = "adapter_config.json"
HEADS_FILE = "jat_config.json"  # beside an adapter of PEFT: the settings of the heads under it
# The task of the adapter's own settings: PEFT alone quotes it, as it knows none such, and refuses.
ADAPTER_NOTE = "jump heads: load it with jat_graph.from_pretrained"
_NO_BREAK = "\u00a0"  # a space that textwrap leaves
CARD_FILE = "README.md"
NOTE = """\
After `import jat_graph.hf`, transformers and sentence-transformers also load heads without weights
of their own; without it they say "not supported", or load `"sdpa"` without the heads."""
NOTE_OF_ADAPTER = """\
This loads the base model, attaches the heads and adds the adapter, which PEFT alone refuses."""
# By which a card is known that may be replaced: whoever writes another one leaves it out.
_MARK = "<!-- written by jat_graph, and replaced by the next save -->"
# Lines of the template that PEFT writes, which nobody has filled in.
_EMPTY = ("# Model Card for Model ID", "[More Information Needed]")


def save_pretrained(model: nn.Module, folder: str | Path, **kwargs: Any) -> None:
    """Save a model or an adapter of PEFT, its heads and a README.md about them.

    A model says in its own config.json which heads it has, whoever saves it. An adapter does not:
    saved by PEFT alone, or by a Trainer, it wants :func:`save_heads` in its folder.

    Args:
        model: A model of transformers with heads of ours, or a PEFT model around one.
        folder: Where to; a README.md that somebody else wrote there stays.
        kwargs: Arguments of the model's own ``save_pretrained``.

    Raises:
        ValueError: If the model has no heads of ours.
    """
    _settings(model)
    saver: Any = model
    saver.save_pretrained(str(folder), **kwargs)
    if kwargs.get("is_main_process", True):
        save_heads(model, folder)


def save_heads(model: nn.Module, folder: str | Path) -> None:
    """Write beside a saved model or adapter which heads it has; a Trainer's callback may call it.

    Args:
        model: A model of transformers with heads of ours, or a PEFT model around one.
        folder: Where it was saved. An adapter gets a ``jat_config.json``, and a ``task_type`` by
            which PEFT refuses to load the adapter alone; both get a README.md.

    Raises:
        ValueError: If the model has no heads of ours.
    """
    settings = _settings(model)
    path = Path(folder, CARD_FILE)
    others = (Path(folder, name) for name in getattr(model, "peft_config", ()))
    adapters = [own for own in (Path(folder), *others) if (own / ADAPTER_FILE).is_file()]
    for own in adapters:
        fields = {"task_type": None} | read_object(own / ADAPTER_FILE, "settings of an adapter")
        noted = fields | {"task_type": ADAPTER_NOTE}
        if fields["task_type"] == ADAPTER_NOTE:  # by an earlier call
            fields = read_object(own / HEADS_FILE, "settings of heads")
        heads = settings | {"task_type": fields["task_type"]}
        write_text(own / HEADS_FILE, json.dumps(heads, indent=2) + "\n")
        write_text(own / ADAPTER_FILE, json.dumps(noted, indent=2) + "\n")
    found = path.read_text(encoding="utf-8", errors="replace") if path.exists() else _MARK
    if _MARK in found or all(line in found for line in _EMPTY):
        write_text(path, model_card_text(model, adapter=bool(adapters)))


def model_card_text(model: nn.Module, *, adapter: bool = False) -> str:
    """Return a README.md for a saved model: its heads, how to load it, and their settings.

    Args:
        model: As for :func:`save_pretrained`.
        adapter: Whether an adapter of PEFT is saved, and not the model. (default: False)

    Returns:
        Markdown, with what the Hub reads at its top.

    Raises:
        ValueError: If the model has no heads of ours.
    """
    settings, base = _settings(model), transformer_of(model)
    name = type(base).__name__
    what = "An adapter of PEFT for a " if adapter else "A "
    template = files("jat_graph.hf").joinpath("card.md").read_text("utf-8")
    return template.format(
        library="peft" if adapter else "transformers",
        title=f"{what}{name} with heads of jat_graph",
        summary=summary(base),
        architecture=name,
        note=NOTE_OF_ADAPTER if adapter else NOTE,
        settings=json.dumps(settings, indent=2),
        mark=_MARK,
    )


def _settings(model: nn.Module) -> dict[str, Any]:
    attachment = find_attachment(model)
    name = type(model).__name__
    if attachment is None:
        raise ValueError(f"model must have heads of jat_graph to save, got a {name}")
    return {kind.name: config.to_dict() for kind, config in attachment.configs.items()}


def summary(model: nn.Module) -> str:
    """Say which layers and heads of a model jump, how, and with which strengths.

    Args:
        model: A model of transformers, or a wrapper around it, with heads of ours or without.

    Returns:
        A line on the model, and one for each layer with such heads, or for several alike; then what
        these leave alone, and why, as :func:`supports` tells it. A model whose configuration has
        settings of heads that it lacks is warned of.

    Example:
        >>> import jat_graph
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4))
        >>> model = jat_graph.attach(model, jat_graph.JatConfig.paper(layers=(2, 5), threshold=4.0))
        >>> print(jat_graph.summary(model))
        BertModel has heads of jat_graph
          layers 2, 5: jump heads 0-3 of 4: pairs, threshold 4, hop weights (0, 1)
    """
    attachment = find_attachment(model)
    name = type(model).__name__
    if attachment is None:
        warn_without_heads(model)
        return _summary_by_name(model) or f"{name} has no jump heads"
    found: dict[int, list[str]] = {}
    for module in model.modules():
        for heads in heads_of(module):
            which = f"{heads.word} heads {_numbers(heads.heads)} of {heads.num_heads}"
            found.setdefault(heads.index, []).append(f"{which}: {heads.describe(module)}")
    layers = {index: "; ".join(lines) for index, lines in sorted(found.items())}
    off = "" if setting_of(attachment, "enabled") else " (switched off)"
    lines = [f"{name} has heads of jat_graph{off}"]
    wrapper = textwrap.TextWrapper(
        80, "  ", 4 * " ", break_on_hyphens=False, break_long_words=False
    )
    for line, alike in groupby(layers, key=layers.__getitem__):
        indices = tuple(alike)
        row = f"layer{'s' if len(indices) > 1 else ''} {_numbers(indices)}: {line}"
        # Spaces within brackets are none that a line may break at.
        row = re.sub(r"\([^()]*\)", lambda found: found[0].replace(" ", _NO_BREAK), row)
        lines += wrapper.wrap(row)
    *_, config = attachment.configs.values()
    left = support_lines(row for row in supports(model, config) if row.why)
    lines += [row for line in left for row in wrapper.wrap(line)]
    return "\n".join(lines).replace(_NO_BREAK, " ")


def _summary_by_name(model: nn.Module) -> str:
    """Say what the parts of a model that are on a name of clusters do; nothing of others."""
    if not any(graph_by_name(part.config) for part in model_parts(model)):
        return ""
    base = transformer_of(model)
    named: dict[str, list[LayerSupport]] = {}
    for row in supports(base):
        config = getattr(base.get_submodule(row.name), "config", None)
        if config is not None and graph_by_name(config):
            named.setdefault(str(config._attn_implementation), []).append(row)
    head = f"{type(model).__name__} runs on"
    blocks = ([f"{head} {name!r}", *support_lines(rows)] for name, rows in named.items())
    return "\n".join(map("\n  ".join, blocks))


def _numbers(indices: tuple[int, ...]) -> str:
    """Return indices in rising order as few ranges: ``0-3, 6``."""
    runs = neighbours(indices)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


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
            :func:`detach` goes back to, ``"sdpa"`` by default. ``"clustered"`` loads a model that
            was saved without heads, too. For an adapter ``is_trainable`` and ``adapter_name``.

    Returns:
        The model, with the heads of its configuration attached; for an adapter the ``PeftModel``
        around it, with the heads of ``jat_config.json`` beside it, or else its base model's own.

    Raises:
        ValueError: If the model was saved without heads, by a newer version, or with layers that
            must be given; a base model has other heads than its adapter; or a folder is not there.
        OSError: If there is no such model on the Hub.

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
        example = f"from_pretrained(AutoModel, {str(path) or 'FOLDER'!r})"
        wanted = f"a class of transformers and a folder, as in {example}"
        raise ValueError(f"from_pretrained takes {wanted}, got {auto_class!r} and {str(path)!r}")
    check_model_name(str(path))
    at_hand = isinstance(auto_class, torch.nn.Module)
    adapter = None
    if at_hand or not Path(path, "config.json").is_file():  # a model's folder may hold one, too
        where = {name: kwargs[name] for name in HUB_OPTIONS if name in kwargs}
        adapter = find_adapter_config_file(str(path), **where)
    if at_hand and adapter is None:
        raise ValueError(f"{path} must hold an adapter when a model is given, got none")
    if adapter is not None:
        return _load_adapter(auto_class, path, adapter, conv, kwargs)
    saved = saved_configs(_config_of(path, kwargs))
    configs = {kind: with_layers(config, conv) for kind, config in saved.items()}
    given = kwargs.get("attn_implementation")
    names = given.values() if isinstance(given, dict) else (given,)
    if not configs and any(str(name).partition(":")[0] == CLUSTERED for name in names):
        loaded = auto_class.from_pretrained(path, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        rows = supports(model)
        if not any(row.why is None for row in rows):
            why = "; ".join(support_lines(rows)) or "it has no attention"
            raise ValueError(f"{type(model).__name__} cannot read by clusters: {why}")
        return loaded
    if not configs:
        cure = f"load it by {auto_class.__name__}.from_pretrained, and attach some to it if it is"
        raise ValueError(f"{path} was saved without heads of jat_graph: {cure} to have them")
    if kwargs.get("attn_implementation", NAME) in NAMES:
        kwargs["attn_implementation"] = "sdpa"
    with setting(plain, True):
        if learn(configs):
            loaded = _load_learned(auto_class, path, configs, conv, kwargs)
        else:
            loaded = auto_class.from_pretrained(path, **kwargs)
    # With output_loading_info=True it is the model and a report.
    attach_saved(loaded[0] if isinstance(loaded, tuple) else loaded, configs, conv)
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
    noted = fields.pop(ADAPTER_NOTE, {})  # in folders of before
    noted = noted if beside is None else read_object(beside, "settings of heads")
    configs = saved_configs(noted)
    if fields.get("task_type") == ADAPTER_NOTE:
        fields["task_type"] = noted.get("task_type")
    options = {name: kwargs.pop(name) for name in ADAPTER_OPTIONS if name in kwargs}
    if not isinstance(base, torch.nn.Module):
        name = fields.get("base_model_name_or_path")
        if not name:
            raise ValueError(f"{path} names no base model: use from_pretrained(MODEL, FOLDER)")
        if saved_configs(_config_of(name, kwargs)):
            base = from_pretrained(base, name, conv=conv, **kwargs)
        elif configs:
            base = base.from_pretrained(name, **kwargs)
        else:
            cure = "jat_graph.save_pretrained, or load it with peft and use jat_graph.attach"
            got = f"{path} has no {HEADS_FILE}, and its base model no heads"
            raise ValueError(f"{got}: save it by {cure}")
    attachment = find_attachment(base)
    if attachment is None:
        attach_saved(base, configs, conv)
    elif configs and attachment.configs != configs:
        wanted = f"{type(base).__name__} must have the heads that the adapter in {path} was trained"
        cure = "after jat_graph.detach, those of the adapter are attached"
        raise ValueError(f"{wanted} with, got others; {cure}")
    config = PeftConfig.from_peft_type(**fields)  # type: ignore[no-untyped-call]
    if isinstance(base, PeftModel):  # which gets it beside those that it has
        base.add_adapter(name := options.pop("adapter_name", "default"), config)
        base.load_adapter(str(path), name, **options)
        return base
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
    configs: ConfigsByKind,
    conv: ConvFactory | None,
    kwargs: dict[str, Any],
) -> Any:
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
            brought.extend(add_parameters(self, kind.in_modules(found, config), conv))

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
