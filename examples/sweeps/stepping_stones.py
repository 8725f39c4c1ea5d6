"""Sweeps of the kind ``stepping-stones``: an encoder has lessons, then answers questions.

A task names the encoder: of ``"2 layers"`` all weights are drawn from the seed, ``"pretrained"`` is
``--model``. It learns the sweep's ``[[study.lessons]]`` without heads of a variant; one from
scratch that fails a lesson is drawn anew, ``study.attempts`` times at most. All variants begin with
what these left, in ``lessons/`` beside ``runs/``.

Words are tagged by one layer fewer than the encoder has, of drawn weights at most by two, and
copies of the last one are put on top for the questions: where the top layer tags words, the token
that answers has nothing to read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from examples.sweeps import training
from examples.sweeps.definition import Run
from examples.sweeps.heads import build_heads
from examples.sweeps.scratch import HEADS, SPECIAL, for_transformers, write_model
from examples.tasks import get_task
from examples.tasks.stepping_stones import ADJECTIVES, NOUNS
from jat_graph import JatConfig

PRETRAINED, TASK = "pretrained", "steppingstones"
_TAGGERS = 2  # layers
_SEEDS_APART = 10_000  # of two attempts; no run has as high a seed


def check(run: Run) -> None:
    """Refuse encoders, lessons and variants that do not fit each other."""
    if run.variant.options or run.variant.tune or run.variant.density:
        raise ValueError("variants must differ in their heads alone: all go on from the lessons")
    for lesson in run.sweep.study.get("lessons", ()):
        get_task(lesson["task"])
    _heads(run)


def run(run: Run) -> dict[str, Any]:
    """Teach the lessons, if no other variant has, then train and score on the questions."""
    index = run.output.joinpath("lessons", *run.folder.parts[-3:-2], f"seed-{run.seed}")
    index.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{index}.lock"):  # other variants may be at the lessons
        scores, begin = learn(run, index.resolve())
    options = {"task_name": TASK, "depth": _shape(run)[0], **begin}
    record = training.make_record(run, training.train(run, run.folder, _heads(run), **options))
    answers = {split: both for split, both in record["answers"].items() if split == "test"}
    return {**record, "scores": {**record["scores"], "lessons": scores}, "answers": answers}


def learn(run: Run, place: Path) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Teach until no lesson fails; return their scores, and with what options a run begins."""
    drawn, study = run.task != PRETRAINED, run.sweep.study
    begin: dict[str, Any] = {"model_name_or_path": run.model}
    if drawn:
        begin = {"model_name_or_path": place / "encoder", "from_scratch": True}
        if not (place / "encoder" / "config.json").exists():
            write_model(place / "encoder", _shape(run)[0], comparison_tokenizer())
    own = run.sweep.task_options.get(run.task, {})  # the lessons' options are for all encoders
    for attempt in range(study.get("attempts", 1) if drawn else 1):
        scores, options = dict[str, float | None](), dict(begin)
        for number, lesson in enumerate(study.get("lessons", ()), start=1):
            task = get_task(lesson["task"])
            name = f"{number}-{task.name}"
            said = {key: lesson[key] for key in lesson if key not in ("task", "pass_mark")}
            folder = place / f"attempt-{attempt + 1}" / name
            depth = _shape(run)[0]
            if task.kind == "tagging":
                depth = max(1, min(depth - 1, _TAGGERS if drawn else depth))
            said |= own | options | {"task_name": task.name, "depth": depth}
            pupil = replace(run, seed=run.seed + attempt * _SEEDS_APART)
            measured = training.train(pupil, folder, **said)
            scores[name] = measured[f"eval_{task.primary_metric}"]
            options = {"model_name_or_path": folder}
        if run.sweep.has_passed(scores):
            break
    return scores, options


def _shape(run: Run) -> tuple[int, int]:
    """Layers and heads of a run's encoder."""
    if run.task == PRETRAINED:
        return training.shape(run.model)
    wanted = "'pretrained', '1 layer', '2 layers' …"
    return int(run.read_task(r"([1-9]\d?) layers?", wanted)[1]), HEADS


def _heads(run: Run) -> list[JatConfig]:
    layers, heads = _shape(run)
    return build_heads(run.variant, layers=layers, heads=heads)


def comparison_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of stepping stones: a name has two tokens and a sentence five."""
    words = [*SPECIAL, ">", "?", *ADJECTIVES, *NOUNS]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Lowercase(),
            normalizers.Replace(Regex("costs? more than"), ">"),
            normalizers.Replace(Regex(r"\bdoes\b|\."), ""),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return for_transformers(tokenizer)
