"""Measure what real pretrained decoders find where they read fewer keys (question 16).

``python -m examples.real_answers --data-dir DIR --output FILE.jsonl`` asks SmolLM2 RULER's tasks at
each length, densely, and then by each name of ``--attention`` those on which dense reading has half
of its score; its chat template is used. Answers are greedy, with a cache. What the file has is not
asked again, and several processes may write into one, each with its own tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pandas import DataFrame
from scipy.stats import t as student

from examples import questions
from examples.options import example, option
from examples.pretrained_decoders import PACKAGES
from examples.questions import Row
from examples.real_decoders import DENSE, OTHERS, TREE, prepare, read_rows
from examples.tasks.ruler import RULER, Prompt, fit

FIELDS = ["task", "length", "number", "depth"]
LIMIT = 0.5  # of the score of dense reading, from which on a task counts


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the answers, one line each; finished ones are kept")
    model: str = option(f"{', '.join(PACKAGES)}, or a folder", "smollm2")
    attention: list[str] = option("names, as for real_decoders", [TREE, *OTHERS])
    data_dir: Path | None = option("folder with WikiText-2, SQuAD and MultiRC", None)
    tasks: list[str] = option(f"among {'; '.join(RULER)}", [*RULER])
    lengths: list[int] = option("most tokens of a prompt", [1024, 2048, 4096, 8000])
    prompts: int = option("prompts of each task and length, at even depths", 10)
    device: str = "cpu"


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Ask what the file lacks; yield a line for each answer, and then a table."""
    if unknown := [task for task in args.tasks if task not in RULER]:
        raise ValueError(f"tasks must be among {'; '.join(RULER)}, got {unknown[0]!r}")
    model, tokenizer, names = prepare(args)
    own, rows = read_rows(args, "answers of real_answers", "score")
    for name in names:  # dense reading is the first
        model.set_attn_implementation(names[name])
        for about, prompt in draw_prompts(tokenizer, args):
            place = about | {"attention": name}
            done = any(place.items() <= row.items() for row in rows)
            if done or not may_count(rows, about, args.prompts):
                continue
            said = answer(model, tokenizer, prompt)
            rows.append(own | place | {"score": prompt.score(said), "said": said})
            questions.add_runs(args.output, rows[-1:])
            yield " ".join(str(rows[-1][x]) for x in [*FIELDS, "attention", "score"])
    yield from table(rows)


def may_count(rows: list[Row], about: Row, prompts: int) -> bool:
    """Return whether dense reading may reach the limit on a task at a length."""
    place = {name: about[name] for name in ("task", "length")} | {"attention": DENSE}
    scores = [row["score"] for row in rows if place.items() <= row.items()]
    return sum(scores) + prompts - len(scores) >= LIMIT * prompts


def draw_prompts(tokenizer: Any, args: Options) -> Iterator[tuple[Row, Prompt]]:
    """Yield prompts, of all tasks and lengths in turns."""

    def count(prompt: Prompt) -> int:
        return len(encode(tokenizer, prompt)) + prompt.tokens

    for number in range(args.prompts):
        depth = round((number + 0.5) / args.prompts, 3)
        for length in args.lengths:
            for task in args.tasks:
                about = dict(zip(FIELDS, (task, length, number, depth), strict=True))
                seed = f"{task} {number}"
                yield about, fit(RULER[task], length, count, seed, depth, args.data_dir)


def encode(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Return the tokens of a prompt and of how its answer begins."""
    text = prompt.text
    if tokenizer.chat_template:
        said = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    found = tokenizer(f"{text}{prompt.start}", add_special_tokens=not tokenizer.chat_template)
    return list(found["input_ids"])


@torch.no_grad()
def answer(model: Any, tokenizer: Any, prompt: Prompt) -> str:
    """Return what a model says, greedily."""
    ids = torch.tensor([encode(tokenizer, prompt)], device=model.device)
    said = model.generate(ids, max_new_tokens=prompt.tokens, do_sample=False)
    return str(tokenizer.decode(said[0, ids.size(1) :], skip_special_tokens=True))


def table(rows: list[Row]) -> Iterator[str]:
    """Yield scores on the tasks that count, then shares of dense reading's, with intervals."""
    scores = counting(rows)
    tasks = scores.groupby(["task", "length"], sort=False).mean()
    lengths = sorted({length for _, length in tasks.index})
    yield f"| task | tokens | {' | '.join(scores)} |"
    yield f"|{'---|' * (len(scores.columns) + 2)}"
    for (task, length), own in tasks.iterrows():
        yield f"| {task} | {length} | {' | '.join('' if x != x else f'{x:.0%}' for x in own)} |"
    for length in [*lengths, "all"]:
        own = scores if length == "all" else scores.xs(length, level="length")
        cells = [share(own[[DENSE, name]].dropna()) for name in own]
        yield f"| of dense reading | {length} | {' | '.join(cells)} |"


def counting(rows: list[Row]) -> DataFrame:
    """Return scores of prompts by attention, where dense reading has half on a task and length."""
    frame = DataFrame(rows, columns=[*FIELDS, "attention", "score"]).astype({"score": float})
    names = [*dict.fromkeys([DENSE, *frame["attention"]])]
    scores = frame.pivot(index=FIELDS, columns="attention", values="score").reindex(columns=names)
    dense = scores[DENSE].groupby(["task", "length"]).transform("mean")
    return scores[dense >= LIMIT].sort_index(level="length", sort_remaining=False)


def share(scores: DataFrame) -> str:
    """Return which share of dense reading's score another has, with Student's interval of 95 %."""
    dense, other = scores.iloc[:, 0], scores.iloc[:, -1]
    if len(scores) < 2:
        return ""
    half = student.ppf(0.975, len(scores) - 1) * (other - dense).sem()
    return f"{other.mean() / dense.mean():.0%} ± {half / dense.mean():.0%}"


if __name__ == "__main__":
    main()
