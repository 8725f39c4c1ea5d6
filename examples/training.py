"""What the run scripts share beside arguments, data and heads: models, the Trainer, and a run."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import SequentialSampler
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_pt_utils import DistributedLengthGroupedSampler

from examples.arguments import RUN_FILE, DataArguments, ModelArguments, last_checkpoint, read_heads
from examples.data import draw_rows
from examples.depth import change_depth
from jat_graph import JatConfig, attach, calibrate, from_pretrained, using_global_tokens
from jat_graph.clusters.settings import NEVER
from jat_graph.core.files import read_text, write_text
from jat_graph.hf import resize_position_embeddings
from jat_graph.hf.by_name import graph_by_name
from jat_graph.hf.capture import modules_with
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.hf.modules import attention_modules
from jat_graph.hf.positions import most_positions, position_tables
from jat_graph.training import JatTrainerMixin

# What configurations of transformers call the dropout of attention probabilities.
_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")

CALIBRATION_BATCHES = 8
TOLD = ("labels", "start_positions", "end_positions")  # what a model learns from
GLOBAL = "global_attention_mask"  # a column of features, and what models take

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Encoded:
    """A split as a model reads it."""

    features: Dataset  # token ids and labels, one row a sequence
    rows: Dataset  # as the task has them
    notes: Any = None  # what only scores need


Answers: TypeAlias = dict[str, list[Any]]  # what was said of each example, beside what is right


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
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[list[str]], max_length: int
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
    return tokenizer(*texts, truncation=True, max_length=max_length)


def load_config(model: ModelArguments, **settings: Any) -> PreTrainedConfig:
    """The model's configuration with other settings."""
    config: PreTrainedConfig = AutoConfig.from_pretrained(model.model_name_or_path)
    if model.attention_dropout is not None:
        names = [name for name in _DROPOUTS if hasattr(config, name)]
        if not names:
            raise ValueError(f"{model.model_name_or_path} has no dropout of attention to set")
        settings |= dict.fromkeys(names, model.attention_dropout)
    for name, value in settings.items():
        setattr(config, name, value)
    return config


def saved_heads(config: PreTrainedConfig) -> bool:
    """Whether a model was saved with jump heads."""
    return isinstance(getattr(config, "jat", None), dict)


def load_model(
    auto_class: Any,
    model: ModelArguments,
    config: PreTrainedConfig,
    seed: int,
    max_length: int,
    tokenizer: PreTrainedTokenizerBase | None,
) -> PreTrainedModel:
    """Load a model, or draw its weights; a new head is drawn from the seed, whatever heads jump."""
    set_seed(seed)
    if model.from_scratch:
        loaded = auto_class.from_config(config)
    else:
        load = partial(from_pretrained, auto_class)
        load = load if saved_heads(config) else auto_class.from_pretrained
        loaded = load(model.model_name_or_path, config=config, ignore_mismatched_sizes=True)
    if model.depth is not None:
        change_depth(loaded, model.depth)
    tables = [table.length for table in position_tables(loaded)]
    limit = min(tables) if tables else most_positions(loaded.config)
    if limit is not None and limit < max_length:
        resize_position_embeddings(loaded, max_length)
        said = "the table of %d positions was made longer, for %d tokens"
        logger.warning(said, limit, max_length)
    if tokenizer is not None:
        tokenizer.model_max_length = max(max_length, tokenizer.model_max_length)
    if model.attn_implementation is not None:
        loaded.set_attn_implementation(model.attn_implementation)
        if model.attn_implementation != "eager":
            attention_modules(loaded)  # refuses a model that would not heed the name, in silence
    return loaded


def _lengths(features: Dataset) -> list[int]:
    """Tokens of each row, of the longest choice where a row has several."""
    rows = features["input_ids"]
    return [max(map(len, ids)) if isinstance(ids[0], list) else len(ids) for ids in rows]


Judge = Callable[[Any, Any, Encoded], tuple[dict[str, float], Answers | None]]


class TaskTrainer(JatTrainerMixin, Trainer):
    """The Trainer of all run scripts."""

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
        batches = self.args.gradient_accumulation_steps * self.args.world_size
        size = self.args.train_batch_size * batches
        # Seed and epoch tell the order; the Trainer's own generator is one that dropout moves.
        one: Any = {"num_replicas": 1, "rank": 0, "seed": self.args.seed}
        lengths = _lengths(train_dataset or self.train_dataset)
        return DistributedLengthGroupedSampler(size, lengths=lengths, **one)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        return SequentialSampler(eval_dataset)  # answers stand beside the rows


def prefixes(splits: Iterable[str]) -> dict[str, str]:
    """What scores of each split begin with: eval for the first to validate on, as the Trainer."""
    found: dict[str, str] = {}
    for name in splits:
        more = f"eval_{name.removeprefix('validation_')}" if "eval" in found.values() else "eval"
        found[name] = name if name in ("train", "test") else more
    return found


def run_trainer(
    model: ModelArguments,
    data: DataArguments,
    args: TrainingArguments,
    auto_class: Any,
    config: PreTrainedConfig,
    encoded: dict[str, Encoded],
    judge: Judge,
    metric: str,
    tokenizer: PreTrainedTokenizerBase | None,
    collate: Callable[[list[Any]], dict[str, Tensor]],
    **kwargs: Any,
) -> dict[str, float]:
    """Load, train, evaluate and save a model; the scores of all splits are written last."""
    loaded = load_model(auto_class, model, config, args.seed, data.max_length, tokenizer)
    is_decoder, names = auto_class is AutoModelForCausalLM, prefixes(encoded)
    folder = Path(str(args.output_dir))
    if is_decoder:
        check_decoder(loaded)
    else:
        loaded.accepts_loss_kwargs = False  # type: ignore[assignment]  # transformers issue 47688
    split_of = {prefix: split for split, prefix in names.items()}
    features = {prefix: encoded[split].features for prefix, split in split_of.items()}
    insert_heads(loaded, model, args, tokenizer, features.get("train"), collate)
    _check_clusters(loaded, is_decoder, [*features.values()])
    if any(GLOBAL in rows.column_names for rows in features.values()):
        args.remove_unused_columns = False  # the forward takes it as one of any arguments
        with using_global_tokens(loaded, torch.zeros(1, 1, dtype=torch.bool)):
            pass  # refuses a model that would leave it out
    if args.load_best_model_at_end and args.metric_for_best_model in (None, "loss"):
        says = auto_class in (AutoModelForCausalLM, AutoModelForMaskedLM)
        args.metric_for_best_model, args.greater_is_better = f"eval_{metric}", not says
    answers: dict[str, Answers] = {}
    compute = partial(_scores_of, judge, encoded, answers)
    trainer = TaskTrainer(
        model=loaded,
        args=args,
        processing_class=tokenizer,
        data_collator=collate,
        train_dataset=features.get("train"),
        eval_dataset=features.get("eval"),
        compute_metrics=partial(compute, split_of.get("eval")),  # as it trains
        **kwargs,
    )
    trainer.strength_learning_rate = model.strength_learning_rate
    results: dict[str, float] = {}
    if args.do_train:
        given = args.resume_from_checkpoint
        if trainer.is_world_process_zero():
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / RUN_FILE, json.dumps(model.described, indent=2) + "\n")
        last = last_checkpoint(folder) if given in ("last", "true", "True") else given
        results |= trainer.train(resume_from_checkpoint=last).metrics
        results["train_samples"] = len(encoded["train"].rows)
        trainer.save_model()
        (folder / "training_args.bin").unlink(missing_ok=True)  # run.json says the same
        trainer.log_metrics("train", results)
        trainer.save_metrics("train", results, combined=False)
    for split, prefix in names.items():
        if split == "train" or not (args.do_predict if prefix == "test" else args.do_eval):
            continue
        trainer.compute_metrics = partial(compute, split)
        scores = trainer.evaluate(features[prefix], metric_key_prefix=prefix)
        results |= scores
        trainer.log_metrics(prefix, scores)
        trainer.save_metrics(prefix, scores, combined=False)
    if trainer.is_world_process_zero():
        write_text(folder / "answers.json", json.dumps(answers) + "\n")
    if args.do_train:
        _write_card(trainer, model, data)
    trainer.save_metrics("all", results, combined=False)
    return results


def _scores_of(
    judge: Judge, encoded: dict[str, Encoded], answers: dict[str, Answers], split: str, output: Any
) -> dict[str, float]:
    """Score what a model puts out for a split, and keep what that answers."""
    if not all(np.isfinite(scores).all() for scores in tree_leaves(output.predictions)):
        raise ValueError("the model's output must be finite, got NaN or infinity")
    scores, said = judge(output.predictions, output.label_ids, encoded[split])
    if said is not None:
        answers[split] = said
    return scores


def _write_card(trainer: TaskTrainer, model: ModelArguments, data: DataArguments) -> None:
    """Write the Trainer's model card, which knows no models in folders."""
    name, own = model.model_name_or_path, Path(str(data.train_file)).name
    known = None if model.from_scratch or Path(name).exists() else name  # on the Hub
    dataset = data.task_name or data.dataset_name or own
    trainer.create_model_card(dataset=dataset, finetuned_from=known)
    if trainer.is_world_process_zero() and known is None and not model.from_scratch:
        card = Path(str(trainer.args.output_dir), "README.md")
        source = f"fine-tuned from {Path(name).name} on"
        write_text(card, read_text(card).replace("trained from scratch on", source))


def insert_heads(
    loaded: PreTrainedModel,
    model: ModelArguments,
    args: TrainingArguments,
    tokenizer: PreTrainedTokenizerBase | None,
    train: Dataset | None,
    collate: Callable[[list[Any]], dict[str, Tensor]],
) -> PreTrainedModel:
    """Attach heads to a model; thresholds are calibrated on training rows where it is asked for."""
    heads = read_heads(model)
    if heads and saved_heads(loaded.config):
        raise ValueError(
            f"model {model.model_name_or_path} has heads already: leave out --jat_… and --density"
        )
    if heads and model.density is not None:
        file = Path(str(args.output_dir), "calibrated.json")
        with args.main_process_first():  # thresholds must be the same in each, to the last bit
            if not file.exists():
                if train is None:
                    raise ValueError("density needs --do_train: it is measured on training rows")
                file.parent.mkdir(parents=True, exist_ok=True)
                size = args.train_batch_size * args.world_size
                drawn = [*draw_rows(train, CALIBRATION_BATCHES * size)]  # once for all seeds
                batches = [collate(drawn[i : i + size]) for i in range(0, len(drawn), size)]
                for batch, told in product(batches, TOLD):
                    batch.pop(told, None)
                calibrate(loaded, batches, density=model.density, config=heads).save(file)
        heads = JatConfig.load(file)
    if heads:
        attach(loaded, heads, tokenizer)
    return loaded


def _check_clusters(model: PreTrainedModel, causal: bool, splits: Sequence[Dataset]) -> None:
    """Say it where no text is long enough to be read by the clusters that were asked for."""
    named = graph_by_name(model.config)
    device = model.device.type
    layers = (
        layer.rules[causal, device == "cuda"] for _, layer in modules_with(model, AttachedClusters)
    )
    rules = [
        rule for own in ([named.rules(1, causal, device)] if named else layers) for rule in own
    ]
    first = 1 + min((rule.first for rule in rules), default=NEVER)
    if first < NEVER and (longest := max(max(_lengths(split)) for split in splits)) < first:
        said = "no text is read by clusters: the longest has %d tokens, and below %d the attention "
        said += "is the model's own; a lower dense_below changes that"
        logger.warning(said, longest, first)


def check_decoder(model: PreTrainedModel) -> None:
    """Refuse an encoder: it would see what it is to say."""
    training = model.training
    with torch.no_grad():
        model.train(False)
        first, other = model(input_ids=torch.tensor([[0, 0], [0, 1]])).logits[:, 0]
        model.train(training)
    if not torch.equal(first, other):
        raise ValueError(
            f"model must be a decoder, got {type(model).__name__}: it sees later tokens"
        )
