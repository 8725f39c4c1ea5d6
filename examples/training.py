"""What the run scripts share: arguments, data, models with heads, and the Trainer.

Each script takes all options of transformers' ``TrainingArguments``, and these.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from datasets import Dataset, load_dataset
from torch import Tensor
from torch.utils.data import SequentialSampler
from transformers import (
    AutoConfig,
    AutoTokenizer,
    HfArgumentParser,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import get_last_checkpoint

from examples.tasks import RecallTask, Splits, Task, get_task
from jat_graph import JatConfig, attach, calibrate, from_pretrained
from jat_graph.files import check_model_name, read_object, write_text
from jat_graph.hf import FilterConfig, TripletConfig, change_depth, stretch_positions
from jat_graph.hf.positions import most_positions, position_tables
from jat_graph.training.mixin import JatTrainerMixin

ArgumentsT = TypeVar("ArgumentsT", bound="DataArguments")
Heads = JatConfig | TripletConfig | FilterConfig

HEADS = {"jat": JatConfig, "triplet": TripletConfig, "attention_filter": FilterConfig}
PRESETS: dict[str, Callable[[], Heads]] = {
    "paper": JatConfig.paper,
    "released": JatConfig.released,
    "stones": JatConfig.stones,
    "triplet": TripletConfig,
    "gfsa": FilterConfig,
    "ppr": lambda: FilterConfig(rule="ppr"),
}
# What configurations of transformers call the dropout of attention probabilities.
_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")
# Where a run is written, how it is shown and where it goes on from say nothing about its result.
_ELSEWHERE = ("output_dir", "resume_from_checkpoint", "run_name", "disable_tqdm", "local_rank")
_SUBSET_SEED = 0  # of draws: one subset for all seeds
CALIBRATION_BATCHES = 8

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    """The model, and the heads that are placed in it."""

    model_name_or_path: str = field(
        metadata={"help": "Folder or Hub name; one saved with heads of ours keeps them."}
    )
    tokenizer_name: str | None = field(
        default=None, metadata={"help": "Folder or Hub name. Default: the model's."}
    )
    from_scratch: bool = field(
        default=False, metadata={"help": "Draw all weights from the seed; config.json is enough."}
    )
    depth: int | None = field(
        default=None, metadata={"help": "Layers: upper ones go, or the top one is copied on top."}
    )
    attention_dropout: float | None = field(
        default=None, metadata={"help": "0 for long inputs on the CPU. Default: the model's."}
    )
    jat_preset: str | None = field(
        default=None, metadata={"help": f"Heads to place: {', '.join(PRESETS)}."}
    )
    jat_config: str | None = field(
        default=None, metadata={"help": "JSON file with settings of heads, of one kind or several."}
    )
    jat_set: list[str] = field(
        default_factory=list,
        metadata={"help": "NAME=VALUE …, fields of the heads' settings, as heads=4 layers=[0,1]."},
    )
    density: float | None = field(
        default=None, metadata={"help": "First calibrate thresholds to this share of pairs."}
    )
    strength_learning_rate: float | None = field(
        default=None, metadata={"help": "Of learned strengths. Default: 100 times the other."}
    )


@dataclass
class DataArguments:
    """The data: a named task, or files of one's own."""

    task_name: str | None = field(
        default=None, metadata={"help": "A named task, as rte; examples/tasks has all."}
    )
    data_dir: str | None = field(
        default=None, metadata={"help": "Folder with the original files of named tasks."}
    )
    dataset_name: str | None = field(
        default=None, metadata={"help": "Data set for load_dataset, in place of files."}
    )
    dataset_config_name: str | None = field(default=None, metadata={"help": "A part of it."})
    train_file: str | None = field(
        default=None, metadata={"help": "Rows to train on: .csv, .tsv, .json or .jsonl; or .txt."}
    )
    validation_file: str | None = field(default=None, metadata={"help": "Rows to validate on."})
    test_file: str | None = field(default=None, metadata={"help": "Rows to test on."})
    max_length: int = field(
        default=128,
        metadata={"help": "Tokens of a sequence; a table of positions that is shorter is resized."},
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "Train on this many."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Evaluate on this many."})
    held_out: float = field(
        default=0.0,
        metadata={"help": "Evaluate on this share of the training data, drawn once for all seeds."},
    )


@dataclass(frozen=True)
class Encoded:
    """A split as a model reads it."""

    features: Dataset  # token ids and labels, one row a sequence
    rows: Dataset  # as the task has them
    notes: Any = None  # what only scores need


@dataclass(frozen=True)
class Answers:
    """What a model said of each example of a split, beside what is right."""

    said: list[Any]
    right: list[Any]


def run_script(name: str, main: Callable[[], dict[str, float]]) -> None:
    """Run a script; what does not fit is said in one line, and its exit code is 1."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        main()
    except (OSError, ValueError, FloatingPointError, ImportError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SystemExit(f"{name}: error: {first}") from None
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
    model, data, args = HfArgumentParser(classes, usage=usage).parse_args_into_dataclasses(words)
    check_model_name(model.model_name_or_path)
    named = [data.task_name, data.dataset_name, data.train_file or data.validation_file]
    if sum(name is not None for name in named) != 1:
        raise ValueError("data must be one of --task_name, --dataset_name and --train_file")
    if not (args.do_train or args.do_eval or args.do_predict):
        raise ValueError("nothing to do: give --do_train, --do_eval or --do_predict")
    if not 0 <= data.held_out < 1:
        raise ValueError(f"held_out must be a share below 1, got {data.held_out}")
    read_heads(model)
    check_folder(model, data, args)
    args.data_seed = args.seed if args.data_seed is None else args.data_seed
    args.dataloader_pin_memory &= args.device.type != "cpu"
    return model, data, args


def check_folder(model: ModelArguments, data: DataArguments, args: TrainingArguments) -> None:
    """Refuse a folder with another run, or with one that is not to go on."""
    folder, file = Path(str(args.output_dir)), Path(str(args.output_dir), "run.json")
    if not args.do_train or not args.should_save:  # the main process says it for all
        return
    resumes = args.resume_from_checkpoint is not None
    if folder.is_dir() and any(folder.iterdir()) and not resumes:
        raise ValueError(
            f"output_dir {folder} must be empty: --resume_from_checkpoint last goes on with the "
            "run in it"
        )
    asked = {**args.to_dict(), **asdict(model), **asdict(data)}
    asked = json.loads(json.dumps({k: v for k, v in asked.items() if k not in _ELSEWHERE}))
    found = read_object(file, "run") if file.exists() else asked
    changed = next((name for name in asked if found.get(name) != asked[name]), None)
    if changed is not None:
        raise ValueError(
            f"output_dir {folder} holds a run with {changed}={found.get(changed)!r}, not "
            f"{asked[changed]!r}: name another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(asked, indent=2) + "\n")


def finished_run(args: TrainingArguments) -> dict[str, float] | None:
    """The scores of the run in a folder, if it has come to its end."""
    file = Path(str(args.output_dir), "all_results.json")
    return read_object(file, "results") if args.do_train and file.exists() else None


def load_task(data: DataArguments, kind: str) -> Task | None:
    """The named task; None where there is none."""
    task = None if data.task_name is None else get_task(data.task_name)
    if task is not None and (isinstance(task, RecallTask) or task.kind != kind):
        raise ValueError(f"task_name must be a task of run_{kind}, got {task.name}, of {task.kind}")
    return task


def load_splits(data: DataArguments, task: Task | None, args: TrainingArguments) -> Splits:
    """Read the splits that a run needs, and draw as many rows of them as it wants."""
    names = [name for name in (task.splits if task else ()) if _is_needed(name, data, args)]
    found = task.load(data.data_dir, names) if task else _own_splits(data)
    group = task.group if task else None
    if data.held_out:
        source = task and (task.source or task.group)
        rows = found.pop("train")
        groups = range(len(rows)) if source is None else rows[source]
        held, kept = draw_groups(groups, round(data.held_out * len(rows)))
        if not held or not kept:
            raise ValueError(f"held_out must leave some of {len(rows)} rows, got {data.held_out}")
        found = {"train": rows.select(kept), "held_out": rows.select(held)}
    limits = {"train": data.max_train_samples}
    found = {
        name: draw_rows(rows, limits.get(name, data.max_eval_samples), group)
        for name, rows in found.items()
    }
    wanted = [("train", args.do_train), ("validation", args.do_eval), ("test", args.do_predict)]
    for name, needed in wanted:
        if needed and not any(split.startswith(name) or split == "held_out" for split in found):
            raise ValueError(f"there must be rows for {name}, got {', '.join(found)} only")
    return found


def _is_needed(split: str, data: DataArguments, args: TrainingArguments) -> bool:
    """Whether a split of a named task is read."""
    if split == "train":
        return args.do_train or bool(data.held_out)
    return not data.held_out and (args.do_predict if split == "test" else True)


def _own_splits(data: DataArguments) -> Splits:
    """The rows of a person's own files, or of a data set with a name."""
    if data.dataset_name is not None:
        return dict(load_dataset(data.dataset_name, data.dataset_config_name))
    files = {"train": data.train_file, "validation": data.validation_file, "test": data.test_file}
    found: Splits = {}
    for name, file in files.items():
        if file is None:
            continue
        if not Path(file).is_file():
            raise FileNotFoundError(f"{name}_file {file} must be a file, got none")
        ending = Path(file.removesuffix(".gz")).suffix
        if ending in (".csv", ".tsv"):
            rows = load_dataset("csv", data_files=file, sep="\t" if ending == ".tsv" else ",")
        elif ending in (".json", ".jsonl"):
            rows = load_dataset("json", data_files=file)
        elif ending == ".txt":
            rows = load_dataset("text", data_files=file, sample_by="document")
        else:
            raise ValueError(f"{name}_file must end in .csv, .tsv, .json, .jsonl or .txt: {file}")
        found[name] = rows["train"]
    return found


def check_columns(splits: Splits, columns: Iterable[str | None]) -> None:
    """Refuse names of columns that the data does not have."""
    for split, rows in splits.items():
        for name in filter(None, columns):
            if name not in rows.column_names:
                got = ", ".join(rows.column_names)
                raise ValueError(f"the {split} data must have a column {name!r}, got {got}")


def draw_rows(rows: Dataset, limit: int | None, group: str | None = None) -> Dataset:
    """About ``limit`` rows, the same in every run; rows of one group stay together."""
    if limit is None or limit >= len(rows):
        return rows
    if group is None:
        return rows.shuffle(seed=_SUBSET_SEED).select(range(limit))
    return rows.select(draw_groups(rows[group], limit)[0])


def draw_groups(groups: Iterable[Any], limit: int) -> tuple[list[int], list[int]]:
    """Rows of whole groups, drawn until there are enough, and the rows left; always the same."""
    members: dict[Any, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    found = list(members.values())
    drawn: set[int] = set()
    for number in np.random.default_rng(_SUBSET_SEED).permutation(len(found)):
        if len(drawn) >= limit:
            break
        drawn.update(found[number])
    rows = range(sum(map(len, found)))
    return [row for row in rows if row in drawn], [row for row in rows if row not in drawn]


def load_tokenizer(model: ModelArguments) -> PreTrainedTokenizerBase:
    """The tokenizer; one without a padding token pads with its end, as for GPT-2."""
    name = model.tokenizer_name or model.model_name_or_path
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(name)
    # Where a folder has none, transformers makes one up that knows no word.
    if not tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens):
        raise ValueError(f"{name} must have a tokenizer, got none: name one with --tokenizer_name")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def tokenize(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[list[str]], max_length: int, **settings: Any
) -> Any:
    """Tokens of a column of texts, or of two for pairs; a warning says what is cut off."""
    least = tokenizer.num_special_tokens_to_add(pair=len(texts) == 2) + len(texts)
    if max_length < least:  # the tokenizer would then cut nothing
        raise ValueError(f"max_length must be at least {least} for these texts, got {max_length}")
    lengths = [len(ids) for ids in tokenizer(*texts, verbose=False)["input_ids"]]
    cut = [length - max_length for length in lengths if length > max_length]
    if cut:
        share = sum(cut) / sum(lengths)
        message = "max_length=%d cuts %d of %d texts, which lose %.1f%% of all tokens"
        logger.warning(message, max_length, len(cut), len(lengths), 100 * share)
    return tokenizer(*texts, truncation=True, max_length=max_length, **settings)


def load_config(model: ModelArguments, **settings: Any) -> PreTrainedConfig:
    """The model's configuration with other settings."""
    config: PreTrainedConfig = AutoConfig.from_pretrained(model.model_name_or_path)
    for name, value in settings.items():
        setattr(config, name, value)
    names = [name for name in _DROPOUTS if hasattr(config, name)]
    if model.attention_dropout is not None and not names:
        raise ValueError(f"{model.model_name_or_path} has no dropout of attention to set")
    for name in names if model.attention_dropout is not None else ():
        setattr(config, name, model.attention_dropout)
    return config


def load_model(
    auto_class: Any,
    model: ModelArguments,
    config: PreTrainedConfig,
    seed: int,
    max_length: int,
    tokenizer: PreTrainedTokenizerBase | None,
) -> PreTrainedModel:
    """Load a model with a new head, or draw all its weights; heads of ours it was saved with stay.

    The seed is set before, so that models which differ in heads of ours alone share the head.
    """
    set_seed(seed)
    name = model.model_name_or_path
    if model.from_scratch:
        loaded = auto_class.from_config(config)
    elif _saved_heads(config):
        loaded = from_pretrained(auto_class, name, config=config, ignore_mismatched_sizes=True)
    else:
        loaded = auto_class.from_pretrained(name, config=config, ignore_mismatched_sizes=True)
    if model.depth is not None:
        change_depth(loaded, model.depth)
    tables = [table.length for table in position_tables(loaded)]
    limit = min(tables) if tables else most_positions(loaded.config)
    if limit is not None and limit < max_length:
        stretch_positions(loaded, max_length)
    if tokenizer is not None:
        tokenizer.model_max_length = max(max_length, tokenizer.model_max_length)
    return loaded


def _saved_heads(config: PreTrainedConfig) -> list[str]:
    """The kinds of heads that a model was saved with."""
    return [name for name in HEADS if isinstance(getattr(config, name, None), dict)]


def read_heads(model: ModelArguments) -> list[Heads]:
    """The settings of the heads that are placed; none leaves a model as it is."""
    if model.jat_config and model.jat_preset:
        raise ValueError("--jat_config and --jat_preset exclude each other")
    heads: list[Heads] = []
    if model.jat_preset is not None:
        if model.jat_preset not in PRESETS:
            names = ", ".join(PRESETS)
            raise ValueError(f"jat_preset must be one of {names}, got {model.jat_preset!r}")
        heads = [PRESETS[model.jat_preset]()]
    elif model.jat_config is not None:
        content = read_object(Path(model.jat_config), "settings of heads")
        kind = (
            "attention_filter" if "rule" in content else "triplet" if "pairs" in content else "jat"
        )
        named = content if set(content) <= set(HEADS) else {kind: content}
        heads = [HEADS[name].from_dict(settings) for name, settings in named.items()]
    elif model.jat_set or model.density is not None:
        heads = [JatConfig()]
    if model.jat_set:
        heads[0] = _with_settings(heads[0], model.jat_set)
    if model.density is not None and not isinstance(heads[0], JatConfig):
        raise ValueError("density must be of jump heads, got heads without a threshold")
    return heads


def _with_settings(heads: Heads, settings: Sequence[str]) -> Heads:
    """Settings with other fields, each NAME=VALUE with a value in JSON or a word."""
    changes = {}
    for text in settings:
        name, separator, value = text.partition("=")
        if not separator:
            raise ValueError(f"jat_set must be NAME=VALUE, got {text!r}")
        try:
            changes[name] = json.loads(value)
        except json.JSONDecodeError:
            changes[name] = value
    if isinstance(heads, JatConfig):
        return heads.replace(**changes)
    return type(heads).from_dict({**heads.to_dict(), **changes})


def place_heads(
    loaded: PreTrainedModel,
    model: ModelArguments,
    args: TrainingArguments,
    tokenizer: PreTrainedTokenizerBase | None,
    train: Dataset | None,
    collate: Callable[[list[Any]], dict[str, Tensor]],
) -> PreTrainedModel:
    """Attach heads to a model; thresholds are calibrated on training rows where it is asked for."""
    heads = read_heads(model)
    if heads and _saved_heads(loaded.config):
        raise ValueError(
            f"model {model.model_name_or_path} has heads already: leave out --jat_… and --density"
        )
    for config in heads[1:]:
        attach(loaded, config, tokenizer)
    if heads and model.density is not None:
        file = Path(str(args.output_dir), "calibrated.json")
        with args.main_process_first():  # thresholds must be the same in each, to the last bit
            if not file.exists():
                if train is None:
                    raise ValueError("density needs --do_train: it is measured on training rows")
                file.parent.mkdir(parents=True, exist_ok=True)
                batches = _calibration_batches(train, args.per_device_train_batch_size, collate)
                calibrate(loaded, batches, density=model.density, config=heads[0]).save(file)
        heads[0] = JatConfig.load(file)
    if heads:
        attach(loaded, heads[0], tokenizer)
    return loaded


def _calibration_batches(
    train: Dataset, size: int, collate: Callable[[list[Any]], dict[str, Tensor]]
) -> list[dict[str, Tensor]]:
    """Batches of training rows, drawn once for all seeds, without what a model is told."""
    drawn = [*draw_rows(train, CALIBRATION_BATCHES * size)]
    batches = [collate(drawn[start : start + size]) for start in range(0, len(drawn), size)]
    told = ("labels", "start_positions", "end_positions")
    return [{k: v for k, v in batch.items() if k not in told} for batch in batches]


class SeededLengthSampler(LengthGroupedSampler):
    """Batches of similar length, in an order that depends on seed and epoch only.

    The Trainer's own sampler draws from the global generator, which dropout moves on: after a
    resume, and between two models, its order would differ.
    """

    def __init__(self, batch_size: int, lengths: list[int], seed: int) -> None:
        super().__init__(batch_size, lengths=lengths)
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; the data loader calls this."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order: Iterator[int] = super().__iter__()
        return order


Judge = Callable[[Any, Any, Encoded], tuple[dict[str, float], Answers | None]]


class TaskTrainer(JatTrainerMixin, Trainer):
    """The Trainer of all run scripts.

    Args:
        splits: The encoded splits by the prefix of their scores: ``"train"``, ``"eval"``,
            ``"test"`` …
        judge: Makes scores and answers of predictions, labels and a split.
        kwargs: Arguments of transformers' Trainer.
    """

    def __init__(self, splits: dict[str, Encoded], judge: Judge, **kwargs: Any) -> None:
        train, evaluated = splits.get("train"), splits.get("eval")
        super().__init__(
            train_dataset=train and train.features,
            eval_dataset=evaluated and evaluated.features,
            compute_metrics=dict,  # stands for those of the split that is evaluated
            **kwargs,
        )
        self.splits, self.judge = splits, judge
        self.answers: dict[str, Answers | None] = {}

    def evaluation_loop(self, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any) -> Any:
        """Evaluate on a split, and keep what was answered."""
        split = self.splits[metric_key_prefix]

        def compute(output: Any) -> dict[str, float]:
            scores, self.answers[metric_key_prefix] = self.judge(
                output.predictions, output.label_ids, split
            )
            return scores

        self.compute_metrics = compute
        return super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Run one forward and backward pass, and stop where the loss is no number any more."""
        loss: Tensor = super().training_step(*args, **kwargs)
        # The mean over processes: they stop together, or one would wait for the others forever.
        mean = self.accelerator.reduce(loss.detach(), reduction="mean").item()
        if not math.isfinite(mean):
            raise FloatingPointError(
                f"the training loss became {mean} at step {self.state.global_step + 1}: "
                f"lower learning_rate (now {self.args.learning_rate:g}) or use another precision"
            )
        return loss

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        dataset: Any = self.train_dataset if train_dataset is None else train_dataset
        lengths = [
            max(map(len, ids)) if isinstance(ids[0], list) else len(ids)
            for ids in dataset["input_ids"]
        ]
        batches = self.args.gradient_accumulation_steps * self.args.world_size
        return SeededLengthSampler(self.args.train_batch_size * batches, lengths, self.args.seed)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        return SequentialSampler(eval_dataset)  # answers stand beside the rows


def prefixes(splits: Iterable[str]) -> dict[str, str]:
    """What scores of each split begin with: eval for the first to validate on, as the Trainer."""
    found: dict[str, str] = {}
    for name in splits:
        if name in ("train", "test"):
            found[name] = name
        else:
            taken = "eval" in found.values()
            found[name] = f"eval_{name.removeprefix('validation_')}" if taken else "eval"
    return found


def run_trainer(
    model: ModelArguments,
    data: DataArguments,
    args: TrainingArguments,
    loaded: PreTrainedModel,
    encoded: dict[str, Encoded],
    judge: Judge,
    metric: str,
    greater_is_better: bool,
    tokenizer: PreTrainedTokenizerBase | None,
    collate: Callable[[list[Any]], dict[str, Tensor]],
    **kwargs: Any,
) -> dict[str, float]:
    """Train, evaluate and save; the scores are also written, with the answers and a model card."""
    names = prefixes(encoded)
    if args.load_best_model_at_end and args.metric_for_best_model in (None, "loss"):
        args.metric_for_best_model, args.greater_is_better = f"eval_{metric}", greater_is_better
    trainer = TaskTrainer(
        {names[split]: rows for split, rows in encoded.items()},
        judge,
        model=loaded,
        args=args,
        processing_class=tokenizer,
        data_collator=collate,
        **kwargs,
    )
    trainer.strength_learning_rate = model.strength_learning_rate
    results: dict[str, float] = {}
    if args.do_train:
        given, folder = args.resume_from_checkpoint, str(args.output_dir)
        last = get_last_checkpoint(folder) if given in ("last", "true", "True") else given
        results |= trainer.train(resume_from_checkpoint=last).metrics
        results["train_samples"] = len(encoded["train"].rows)
        trainer.save_model()
        Path(folder, "training_args.bin").unlink(missing_ok=True)  # run.json says the same
        _record(trainer, "train", results)
    for split, prefix in names.items():
        if split == "train" or not (args.do_predict if prefix == "test" else args.do_eval):
            continue
        trainer.compute_metrics = dict
        scores = trainer.evaluate(encoded[split].features, metric_key_prefix=prefix)
        results |= scores
        _record(trainer, prefix, scores)
    if trainer.is_world_process_zero():
        answers = {
            split: asdict(found)
            for split, prefix in names.items()
            if (found := trainer.answers.get(prefix)) is not None
        }
        write_text(Path(str(args.output_dir), "answers.json"), json.dumps(answers) + "\n")
    if args.do_train:
        described = data.task_name or data.dataset_name or Path(str(data.train_file)).name
        name = model.model_name_or_path
        trainer.create_model_card(
            dataset=described, finetuned_from=None if Path(name).exists() else name
        )
    return results


def _record(trainer: TaskTrainer, prefix: str, scores: dict[str, float]) -> None:
    trainer.log_metrics(prefix, scores)
    trainer.save_metrics(prefix, scores)
