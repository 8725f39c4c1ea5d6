"""Command lines of the run scripts: all options of ``TrainingArguments``, and a few of ours."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import HfArgumentParser, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from examples.options import option
from jat_graph import JatConfig
from jat_graph.core.files import check_model_name, read_object, replace_unencodable
from jat_graph.looking.cli.options import PRESETS, read_values

ArgumentsT = TypeVar("ArgumentsT", bound="DataArguments")

RUN_FILE = "run.json"
# Where a run is written, how it is shown and where it goes on from say nothing about its result.
_ELSEWHERE = "output_dir resume_from_checkpoint run_name disable_tqdm local_rank described".split()


@dataclass
class ModelArguments:
    """The model, and the heads that are inserted into it."""

    model_name_or_path: str = option("Folder or Hub name; a model saved with heads keeps them.")
    tokenizer_name: str | None = option("Folder or Hub name. Default: the model's.", None)
    from_scratch: bool = option("Start from random weights; config.json is enough.", False)
    depth: int | None = option("Layers: upper ones are left out, or the top one repeated.", None)
    attention_dropout: float | None = option(
        "Use 0 for long inputs on the CPU. Default: the model's.", None
    )
    attn_implementation: str | None = option(
        "How attention is computed: sdpa, clustered, clustered:keys=64 …. Default: sdpa.", None
    )
    jat_preset: str | None = option(f"Heads to insert: {', '.join(PRESETS)}.", None)
    jat_config: str | None = option(
        "JSON file with settings of heads, of one kind or several.", None
    )
    jat_set: list[str] = option(
        "NAME=VALUE …, fields of the settings, such as heads=4 layers=[0,1].", []
    )
    density: float | None = option("First calibrate thresholds to this share of pairs.", None)
    strength_learning_rate: float | None = option(
        "Learning rate of strengths. Default: 100 times the other rate.", None
    )
    # All that was asked for, as it was before anything changed it.
    described: dict[str, Any] = field(default_factory=dict, init=False)


@dataclass
class DataArguments:
    """The data: a named task, or files of one's own."""

    task_name: str | None = option("A named task, such as rte; examples/tasks has all.", None)
    data_dir: str | None = option("Folder with the original files of named tasks.", None)
    dataset_name: str | None = option("Data set for load_dataset, instead of files.", None)
    dataset_config_name: str | None = option("Configuration of that data set.", None)
    train_file: str | None = option("Rows to train on: .csv, .tsv, .json or .jsonl; or .txt.", None)
    validation_file: str | None = option("Rows to validate on.", None)
    test_file: str | None = option("Rows to test on.", None)
    max_length: int = option(
        "Tokens of a sequence; a shorter table of positions is resized. Default: as in the run "
        "that made the model, or 128.",
        None,
    )
    max_train_samples: int | None = option("Number of rows to train on.", None)
    max_eval_samples: int | None = option("Number of rows to evaluate on.", None)
    drop_bad_rows: bool = option("Leave out bad rows of own files, and say how many.", False)
    held_out: float = option(
        "Evaluate on this share of the training data, drawn once for all seeds.", 0.0
    )


def run_script(name: str, main: Callable[[], dict[str, float]]) -> None:
    """Run a script; what does not fit is said in one line, and its exit code is 1."""
    replace_unencodable()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        main()
    except (OSError, ValueError, FloatingPointError, ImportError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SystemExit(f"{name}: error: {first}") from None
    except KeyboardInterrupt:
        print(f"{name}: interrupted; --resume_from_checkpoint last continues", file=sys.stderr)  # noqa: T201
        raise SystemExit(130) from None
    if torch.distributed.is_initialized():
        # An interpreter that ends by itself sometimes aborts here, and its launcher fails.
        torch.distributed.destroy_process_group()
        sys.stdout.flush()
        os._exit(0)


def parse_arguments(
    arguments: Sequence[str] | None, kind: type[ArgumentsT]
) -> tuple[ModelArguments, ArgumentsT, TrainingArguments]:
    """Read a command line, and refuse what can be refused before anything is loaded."""
    usage = "%(prog)s --model_name_or_path M --output_dir O ... (--help lists all options)"
    classes: Any = (ModelArguments, kind, TrainingArguments)
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    parser = HfArgumentParser(classes, usage=usage)
    model, data, args, rest = parser.parse_args_into_dataclasses(words, True)
    if rest:
        known = sorted((own.name for cls in classes for own in fields(cls)), reverse=True)
        word = rest[0].lstrip("-")
        near = [name for name in known if name.endswith(word)] or get_close_matches(word, known)
        found = f"did you mean --{near[0]}?" if near else "--help lists all options"
        raise ValueError(f"unknown option {rest[0]}, {found}")
    check_model_name(model.model_name_or_path)
    named = [data.task_name, data.dataset_name, data.train_file or data.validation_file]
    if sum(name is not None for name in named) != 1:
        raise ValueError("data must be one of --task_name, --dataset_name and --train_file")
    if data.drop_bad_rows and named[2] is None:
        raise ValueError("--drop_bad_rows is for rows of own files: name --train_file")
    if not (args.do_train or args.do_eval or args.do_predict):
        raise ValueError("nothing to do: give --do_train, --do_eval or --do_predict")
    if not 0 <= data.held_out < 1:
        raise ValueError(f"held_out must be a share below 1, got {data.held_out}")
    read_heads(model)
    if data.max_length is None:
        made_by = Path(model.model_name_or_path, RUN_FILE)
        run = read_object(made_by, "run") if made_by.is_file() else {}
        data.max_length = run.get("max_length", 128)
    args.data_seed = args.seed if args.data_seed is None else args.data_seed
    asked = args.to_dict() | asdict(model) | asdict(data)
    kept = {name: value for name, value in asked.items() if name not in _ELSEWHERE}
    model.described = json.loads(json.dumps(kept))
    check_folder(model, args)
    args.dataloader_pin_memory &= args.device.type != "cpu"
    return model, data, args


def read_heads(model: ModelArguments) -> JatConfig | None:
    """The settings of the heads that are inserted; None leaves a model as it is."""
    if model.jat_config and model.jat_preset:
        raise ValueError("--jat_config and --jat_preset exclude each other")
    heads = None
    if model.jat_preset is not None:
        if model.jat_preset not in PRESETS:
            names = ", ".join(PRESETS)
            raise ValueError(f"jat_preset must be one of {names}, got {model.jat_preset!r}")
        heads = getattr(JatConfig, model.jat_preset)()
    elif model.jat_config is not None:
        content = read_object(Path(model.jat_config), "settings of heads")
        heads = JatConfig.from_dict(content["jat"] if set(content) == {"jat"} else content)
    elif model.jat_set or model.density is not None:
        heads = JatConfig()
    changes = read_values("jat_set", model.jat_set)
    return heads.replace(**changes) if heads and changes else heads


def check_folder(model: ModelArguments, args: TrainingArguments) -> None:
    """Refuse a folder with another run, or with one that is not to go on."""
    folder, file = Path(str(args.output_dir)), Path(str(args.output_dir), RUN_FILE)
    if not args.do_train or not args.should_save:  # the main process says it for all
        return
    if args.resume_from_checkpoint is None and folder.is_dir() and any(folder.iterdir()):
        raise ValueError(
            f"output_dir {folder} must be empty: --resume_from_checkpoint last continues the "
            "run in it"
        )
    found = read_object(file, "run") if file.exists() else model.described
    for name, asked in model.described.items():
        if found.get(name) != asked:
            raise ValueError(
                f"output_dir {folder} holds a run with {name}={found.get(name)!r}, not {asked!r}: "
                "name another folder"
            )


def last_checkpoint(folder: Path) -> str | None:
    """Return the last checkpoint that is whole; the Trainer writes its state last of all."""
    whole = {}
    for state in folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}"):
        with suppress(ValueError):  # a process may have been killed in the middle of it
            whole[json.loads(state.read_text("utf-8"))["global_step"]] = str(state.parent)
    return whole[max(whole)] if whole else None


def finished_run(args: TrainingArguments) -> dict[str, float] | None:
    """The scores of the run in a folder, if it has come to its end: they are written last."""
    file = Path(str(args.output_dir), "all_results.json")
    return read_object(file, "results") if args.do_train and file.exists() else None
