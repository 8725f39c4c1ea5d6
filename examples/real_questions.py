"""Measure whether real decoders answer as well where they read fewer keys (question 17).

``python -m examples.real_questions --data-dir DIR --output FILE.jsonl`` lets SmolLM2 read articles
of COVID-QA and meetings of QMSum with its chat template, and answer questions about each from one
cache, densely and by each name of ``--attention``: F1 of words, and ROUGE-L. What the file has is
not asked again, and several processes may write into one, each with a kind of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pandas import DataFrame
from torchmetrics.functional.text import rouge_score
from transformers import DynamicCache

from examples import questions
from examples.methods import PREFIX
from examples.options import example, option
from examples.pretrained_decoders import PACKAGES
from examples.questions import Row
from examples.real_answers import encode
from examples.real_decoders import DENSE, KEYS, LEFT_OUT, TREE, interval, prepare, read_rows
from examples.tasks import get_task
from examples.tasks.documents import read_meetings
from examples.tasks.metrics import score_answers
from examples.tasks.ruler import Prompt

FIELDS = ["kind", "text", "attention", "question"]
TEMPLATE = 100  # tokens at most, of a question and what is around it
OTHERS = [f"{PREFIX}{name}:{KEYS}" for name in ("window", "bounds", "channels")]


class Asked(NamedTuple):
    """A question about a text, its answers, and characters between which the first stands."""

    question: str
    answers: tuple[str, ...]
    places: list[tuple[int, int]]


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the answers, one line each; finished ones are kept")
    model: str = option(f"{', '.join(PACKAGES)}, or a folder", "smollm2")
    attention: list[str] = option("names, as for real_decoders", [TREE, *OTHERS])
    data_dir: Path | None = option("folder with COVID-QA and QMSum", None)
    kinds: list[str] = option("covidqa, qmsum", ["covidqa", "qmsum"])
    lengths: list[int] = option("tokens of a text at most; it has half as many at least", [7800])
    texts: int = option("texts of each kind, if there are so many", 12)
    questions: int = option("questions about each, if there are so many", 8)
    device: str = "cpu"


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Ask what the file lacks; yield a line for each answer, and then a table."""
    if unknown := [kind for kind in args.kinds if kind not in READERS]:
        raise ValueError(f"kinds must be among {', '.join(READERS)}, got {unknown[0]!r}")
    model, tokenizer, names = prepare(args, TEMPLATE + max(TOKENS.values()))
    own, rows = read_rows(args, "answers of real_questions", "f1")
    for about, prompts in draw_texts(tokenizer, args):
        for name in names:
            place = about | {"attention": name}
            done = {row["question"] for row in rows if place.items() <= row.items()}
            left = [number for number in range(len(prompts)) if number not in done]
            model.set_attn_implementation(names[name])
            for number, said in zip(
                left, answer(model, tokenizer, [prompts[x] for x in left]), strict=True
            ):
                rows.append(own | place | {"question": number} | score(said, prompts[number]))
                questions.add_runs(args.output, rows[-1:])
                yield " ".join(str(rows[-1][x]) for x in [*FIELDS, "f1", "rouge"])
    yield from table(rows)


def draw_texts(tokenizer: Any, args: Options) -> Iterator[tuple[Row, list[Prompt]]]:
    """Yield the prompts about each text, of all kinds in turns."""
    found = {}
    for kind in args.kinds:
        every = islice(READERS[kind](args.data_dir), LEFT_OUT.get(kind, 0), None)
        drawn = (cut(tokenizer, kind, text, asked, args) for text, asked in every)
        found[kind] = [*islice(filter(None, drawn), args.texts)]
        if not found[kind]:
            raise ValueError(f"{kind} must have a text of {args.lengths[0]} tokens, got none")
    for number in range(args.texts):
        for kind, texts in found.items():
            if number < len(texts):
                yield {"kind": kind, "text": number}, texts[number]


def cut(
    tokenizer: Any, kind: str, text: str, asked: list[Asked], args: Options
) -> list[Prompt] | None:
    """Return questions whose answers are in the beginning of a text, if it is a long one."""
    (most,) = args.lengths
    places = tokenizer(text, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    if len(places) < most / 2:
        return None
    end = places[:most][-1][1]
    return [
        Prompt(f"{text[:end]}\n\n{HOW[kind]} {x.question}", "", x.answers, False, TOKENS[kind])
        for x in asked
        if max(x.places)[1] <= end
    ][: args.questions]


def read_articles(data_dir: Path | None) -> Iterator[tuple[str, list[Asked]]]:
    """Yield the articles of COVID-QA and their questions."""
    asked: dict[str, list[Asked]] = {}
    for split in get_task("covidqa").load(data_dir).values():
        for row in split:
            texts = tuple(row["answers"]["text"])
            start = row["answers"]["answer_start"][0]
            own = Asked(row["question"], texts, [(start, start + len(texts[0]))])
            asked.setdefault(row["context"], []).append(own)
    yield from asked.items()


def read_transcripts(data_dir: Path | None) -> Iterator[tuple[str, list[Asked]]]:
    """Yield the meetings of QMSum and their questions; answers stand in whole turns."""
    for _, turns, asked in read_meetings(data_dir):
        starts = [*accumulate((len(turn) + 1 for turn in turns), initial=0)]
        found = []
        for query, spans, answer in asked:
            places = [(starts[first], starts[last + 1] - 1) for first, last in spans]
            found.append(Asked(query, (answer,), places))
        yield "\n".join(turns), found


READERS = {"covidqa": read_articles, "qmsum": read_transcripts}
HOW = {
    "covidqa": "Answer the question from the article above, in a few words.",
    "qmsum": "Answer the question from the meeting above, in one or two sentences.",
}
TOKENS = {"covidqa": 48, "qmsum": 96}  # of an answer at most


@torch.no_grad()
def answer(model: Any, tokenizer: Any, prompts: list[Prompt]) -> Iterator[str]:
    """Yield what a model says, greedily; what prompts begin with in common is read once."""
    every = [encode(tokenizer, prompt) for prompt in prompts]
    alike = takewhile(lambda x: len({*x}) == 1, zip(*(ids[:-1] for ids in every), strict=False))
    shared, cache = sum(1 for _ in alike), DynamicCache()
    for ids, prompt in zip(every, prompts, strict=True):
        read = cache.get_seq_length()
        if read > shared:
            cache.crop(shared - read)
        own = torch.tensor([ids], device=model.device)
        if not read:
            model.base_model(own[:, :shared], past_key_values=cache)
        said = model.generate(
            own, past_key_values=cache, max_new_tokens=prompt.tokens, do_sample=False
        )
        yield str(tokenizer.decode(said[0, len(ids) :], skip_special_tokens=True))


def score(said: str, prompt: Prompt) -> Row:
    """Return F1 and ROUGE-L of an answer, the best of the right ones each, from 0 to 100."""
    rouge = rouge_score([said], [[*prompt.answers]], rouge_keys="rougeL")["rougeL_fmeasure"]
    f1 = score_answers([said], [prompt.answers])["f1"]
    return {"f1": round(100 * f1, 2), "rouge": round(100 * rouge.item(), 2), "said": said}


def table(rows: list[Row]) -> Iterator[str]:
    """Yield a line for each kind and attention; intervals are over texts."""
    frame = DataFrame(rows, columns=[*FIELDS, "f1", "rouge"]).sort_values("kind", kind="stable")
    dense = frame[frame["attention"] == DENSE].set_index(["kind", "text", "question"])
    yield "| text | attention | questions | F1 | more than dense | ROUGE-L | more than dense |"
    yield f"|{'---|' * 7}"
    for (kind, name), own in frame.groupby(["kind", "attention"], sort=False):
        own = own.set_index(["kind", "text", "question"])
        cells = [f"{kind} | {name} | {len(own)}"]
        for measure in ("f1", "rouge"):
            more = (own[measure] - dense[measure].reindex(own.index)).groupby("text").mean()
            cells.append(f"{own[measure].mean():.1f} | {interval(more)}")
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
